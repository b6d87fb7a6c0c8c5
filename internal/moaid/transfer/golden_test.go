package transfer

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// TestTranscripts runs the scripts in testdata: one a file, one incident each.
// A line that begins with "> " is an event, those after it are what the machine
// answered. Words of an event: sender|receiver to make a machine, then the
// event's name and key=value fields; +10s passes time first.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

type machine interface {
	Step(Instant, Event) ([]Effect, error)
	State() State
	Deadline() Instant
}

// goldenNeed: 100 bytes a token, all of it from the first token that is missing.
func goldenNeed(tokens, from int) ([]kvcache.Range, error) {
	return []kvcache.Range{{Offset: int64(from) * 100, Length: int64(tokens-from) * 100}}, nil
}

func goldenOwn(ranks int) func(int) ([]Set, error) {
	return func(tokens int) ([]Set, error) { return whole(ranks, int64(tokens)*100), nil }
}

// whole says that each rank has all of its payload alone.
func whole(ranks int, bytes int64) []Set {
	out := make([]Set, ranks)
	for i := range out {
		out[i] = Set{{Offset: 0, Length: bytes}}
	}
	return out
}

// alike is the view of a claimant with the engine's own ranks and payloads.
func alike(ranks int, bytes int64) View {
	return View{Ranks: ranks, Bytes: bytes, Available: func(stored []Set) []Set { return stored }}
}

func replay(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	var m machine
	var view View
	now := Instant(1)
	sc := bufio.NewScanner(strings.NewReader(script))
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, "#") || line == "" {
			fmt.Fprintln(&out, line)
			continue
		}
		cmd, ok := strings.CutPrefix(line, "> ")
		if !ok {
			continue
		}
		fmt.Fprintln(&out, line)
		words := strings.Fields(cmd)
		if d, ok := strings.CutPrefix(words[0], "+"); ok {
			pause, err := time.ParseDuration(d)
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(pause)
			words = words[1:]
		}
		kv := map[string]string{}
		for _, w := range words[1:] {
			k, v, _ := strings.Cut(w, "=")
			kv[k] = v
		}
		switch words[0] {
		case "sender":
			bytes := int64(num(kv["tokens"])) * 100
			view = alike(num(kv["ranks"]), bytes)
			m = NewSender(now, SenderOptions{Tokens: num(kv["tokens"]), Own: whole(view.Ranks, bytes), MaxChunk: 400, Window: 3, Timeouts: DefaultTimeouts()})
		case "receiver":
			var c *Claim
			if kv["held"] == "" {
				c = &Claim{Tokens: num(kv["tokens"]), Hash: kv["hash"], From: num(kv["from"])}
			}
			m = NewReceiver(now, ReceiverOptions{Ranks: num(kv["ranks"]), Need: goldenNeed, Own: goldenOwn(num(kv["ranks"])), Timeouts: DefaultTimeouts()}, c)
		default:
			effects, err := m.Step(now, goldenEvent(t, words[0], kv, view))
			if err != nil {
				fmt.Fprintf(&out, "  refused: %v\n", err)
			}
			for _, e := range effects {
				fmt.Fprintf(&out, "  %s%+v\n", reflect.TypeOf(e).Name(), e)
			}
		}
		fmt.Fprintf(&out, "  %s, deadline in %v\n", m.State(), m.Deadline().Sub(now))
	}
	return out.String()
}

func num(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func goldenEvent(t *testing.T, name string, kv map[string]string, view View) Event {
	t.Helper()
	s, rank := Session(num(kv["s"])), num(kv["rank"])
	off, n := int64(num(kv["off"])), int64(num(kv["len"]))
	rs := []kvcache.Range{{Offset: off, Length: n}}
	switch name {
	case "tick":
		return Tick{}
	case "peer-up":
		return PeerUp{s, Instance{byte(num(kv["instance"]))}}
	case "peer-down":
		return PeerDown{s}
	case "abort":
		return PeerAbort{s, Code(kv["code"]), ""}
	case "cancel":
		return Cancel{CodeCancelled, "operator"}
	case "engine-gone":
		return EngineGone{kv["fenced"] != "", "restarted"}
	case "offer":
		return Offer{num(kv["tokens"]), kv["hash"]}
	case "stored":
		return Stored{rank, rs}
	case "withdraw":
		return Withdraw{"client left"}
	case "peer-claim":
		return PeerClaim{s, kv["by"], 60 * time.Second, view}
	case "grant":
		return PeerGrant{s, rank, rs, int64(num(kv["credit"]))}
	case "peer-credit":
		return PeerCredit{s, rank, int64(num(kv["credit"]))}
	case "commit":
		return PeerCommit{s}
	case "sent":
		return ChunkSent{s, rank, off, n, kv["failed"] != ""}
	case "claim":
		return Claim{num(kv["tokens"]), kv["hash"], num(kv["from"])}
	case "peer-offer":
		return PeerOffer{s, num(kv["tokens"]), kv["hash"]}
	case "leased":
		return Leased{kv["no"] == ""}
	case "credit":
		return Credit{n}
	case "chunk":
		return ChunkVerified{s, rank, off, n}
	case "loaded":
		return Loaded{rank, kv["failed"] == ""}
	case "release":
		return Release{"aborted", kv["loading"] != ""}
	case "unhold":
		return Unhold{"client left"}
	case "fail":
		return Fail{Code(kv["code"]), ""}
	}
	t.Fatalf("there is no event %q", name)
	return nil
}
