// Package transfer is the life of one transfer of a prompt's KV, as the daemon
// of the prefill engine ([Sender]) and the daemon of the decode engine
// ([Receiver]) see it. It is pure: no goroutine, lock, clock, randomness or I/O.
//
// # The caller's contract
//
// One goroutine owns a machine and calls Step(now, event). Step returns effects
// in the order in which they must be carried out, and an error of type *[Refused]
// if the event was a request that must be answered with a refusal; a refusal
// changes nothing. Slow work (leasing pages, copying, sending a chunk) leaves as
// an effect and returns as an event.
//
//   - now never decreases. The caller calls Step with [Tick] not later than
//     Deadline(); a late tick is safe, a missing one is not.
//   - Messages to a peer carry the Session that the machine named. A message of
//     the peer is passed with the session that it came on; the machine drops what
//     belongs to an older one. The caller says [PeerDown] once no chunk of that
//     session can arrive any more.
//   - Every event may be repeated: a repetition has no further effect.
//   - [Ended] comes exactly once, [FreePages] exactly once and not before Ended.
//     FreePages means that no engine touches the pages any more; the caller keeps
//     them in quarantine until its own reads and writes of chunks have ended.
//   - After Ended the machine stays for a while (Retain), so that repeated or late
//     requests get the same answer and a lost COMMIT or ABORT is sent again when
//     the peer returns. Done() says when to forget it.
//
// # Sender
//
//	reserved ──offer──▶ offered ──claim──▶ claimed ──grant──▶ sending ──all sent──▶ sent
//	  60 s                60 s              60 s               60 s, renewed          90 s
//	                                          ▲                by progress             │
//	                                          └──── session lost (30 s to return) ◀────┤
//	 any ──withdraw──▶ withdrawn   any ──ABORT, cancel──▶ aborted   deadline ──▶ expired
//	 claimed, sending, sent ──COMMIT──▶ committed
//
// A claim may come before the offer; it is remembered for its lifetime. Sending
// never leaves the granted ranges, the credit, or what the workers have stored.
//
// The engine's ranks and the claimant's are different spaces: workers store what
// is their own of the engine's payloads, grants and chunks are of the claimant's
// payloads, and the claim's [View] says what of these can be made of those.
//
// # Receiver
//
//	claimed ──offer, hash equal──▶ offered ──pages──▶ receiving ──all verified──▶ ready
//	  60 s                          30 s               30 s, renewed by bytes      60 s
//	    ▲                                                  │                        │ first report
//	    └─────────── session lost (30 s to return) ◀───────┘                        ▼
//	 any ──ABORT, release, cancel, deadline──▶ aborted             committed ◀── loading (60 s)
//
// A claim is held (the request arrived at the daemon: nothing is known of the
// prompt) or made by the engine's connector, or both in this order. A release
// while a load may be running is deferred until every rank has reported.
//
// Every rank has pages for all that the engine needs, and is granted what is its
// own of it. What several ranks have alike travels once: the caller copies it to
// the others before it says [ChunkVerified].
package transfer
