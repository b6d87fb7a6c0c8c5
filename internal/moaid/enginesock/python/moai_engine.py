"""Client of the engine socket, version 1 (docs/protocols/engine-socket.md). Standard library only.

A Session is a scheduler's or that of a worker of one rank; each data-parallel replica has its own. Answers are awaited,
verdicts and other events are stored as they come, so that a poll costs no I/O. Run as a program it obeys one JSON object
a line, for the conformance suite.
"""
import array, collections, itertools, json, mmap, queue, socket, sys, threading

VERSION, MAX_PACKET = 1, 65536
EVENTS = ("room", "released", "verdict", "closed")  # what else a daemon may say unasked is ignored


def hello(engine, generation, fingerprint, rank=None, world=1, data_rank=0, data_size=1):
    """The hello of a replica's scheduler, or of its worker of a rank. generation is the same in all of the replica's."""
    return {"version": VERSION, "engine": engine, "generation": generation, "session": "scheduler" if rank is None else "worker",
            "rank": rank or 0, "world": world, "data_rank": data_rank, "data_size": data_size, "fingerprint": fingerprint}


class Refused(Exception):
    def __init__(self, packet):
        super().__init__(f"{packet.get('message')} ({packet.get('code')})")
        self.packet = packet


class Session:
    def __init__(self):
        self.verdicts, self.reported = {}, set()
        self.arena = self.mem = self.fd = None      # these outlive a connection
        self.node = self.on_transfer_failure = None  # as registered; None if the daemon does not say

    def connect(self, path, hello):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(path)
        self.seq, self.waiting, self.events = itertools.count(1), {}, queue.Queue()
        self.lock, self.closed = threading.Lock(), threading.Event()
        # Its own view of the connection: after a reconnect the old thread must not end the new session.
        threading.Thread(target=self._read, args=(self.sock, self.waiting, self.events, self.lock, self.closed), daemon=True).start()
        answer, _ = self.request("hello", **hello)
        self.node, self.on_transfer_failure = answer.get("node"), answer.get("on_transfer_failure")
        threading.Thread(target=self._ping, args=(self.closed, answer["lease_ms"] / 4000), daemon=True).start()
        return answer

    def request(self, t, fd=None, **fields):
        """Sends a request and gives its answer and the descriptor that came with it; raises Refused, or ConnectionError."""
        done = queue.Queue(1)
        with self.lock:
            seq = next(self.seq)
            self.waiting[seq] = done
            rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            self.sock.sendmsg([json.dumps({"t": t, "seq": seq, **fields}).encode()], rights)
            if self.closed.is_set():
                raise ConnectionError("the session has ended")
        answer, fd = done.get()
        if answer is None:
            raise ConnectionError("the session has ended")
        if answer["t"] == "error":
            raise Refused(answer)
        return answer, fd

    def _read(self, sock, waiting, events, lock, closed):
        while True:
            try:
                packet, anc, flags, _ = sock.recvmsg(MAX_PACKET, socket.CMSG_SPACE(4))
            except OSError:
                packet = b""
            if not packet or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                break
            fds = array.array("i")
            for _, _, data in anc:
                fds.frombytes(data)
            try:
                m = json.loads(packet)
            except ValueError:
                break
            if m["t"] in ("ok", "error"):
                waiting.pop(m["seq"]).put((m, fds[0] if fds else None))
                continue
            if m["t"] == "verdict":
                self.verdicts[m["id"]] = m
            elif m["t"] == "closed":
                self.verdicts.pop(m["id"], None)
            if m["t"] in EVENTS:
                events.put(m)
        with lock:
            closed.set()
            for done in waiting.values():
                done.put((None, None))
        events.put(None)

    def _ping(self, closed, seconds):
        try:
            while not closed.wait(seconds):
                self.request("ping")
        except (OSError, Refused):
            pass

    def claim(self, **fields):
        answer, _ = self.request("claim", **fields)
        if answer["verdict"] != "pending":          # an event may have overtaken the answer
            self.verdicts[fields["id"]] = answer
        return answer

    def poll(self, id):
        return self.verdicts.get(id, {"verdict": "pending"})

    def open_arena(self):
        answer, fd = self.request("arena")
        self.arena, self.fd, self.mem = answer["arena"], fd, mmap.mmap(fd, answer["bytes"])
        return answer

    def views(self, extents, ranges):
        """Where payload ranges of this rank lie: pairs of a payload offset and the arena's memory from there on.

        >>> s = Session()
        >>> s.mem = bytearray(b"..abc.....defghi")
        >>> extents = [{"offset": 2, "length": 3}, {"offset": 10, "length": 6}]
        >>> ranges = [{"offset": 0, "length": 2}, {"offset": 64, "length": 4}, {"offset": 96, "length": 3}]
        >>> [(at, bytes(memory)) for at, memory in s.views(extents, ranges)]
        [(0, b'ab'), (64, b'c'), (65, b'def'), (96, b'ghi')]
        >>> list(s.views([], []))
        []
        """
        extents, memory = iter(extents), memoryview(b"")
        for r in ranges:
            at, left = r["offset"], r["length"]
            while left:
                if not memory:
                    x = next(extents)
                    memory = memoryview(self.mem)[x["offset"]:x["offset"] + x["length"]]
                part, memory = memory[:left], memory[left:]
                yield at, part
                at, left = at + len(part), left - len(part)

    def adopt(self):
        return self.request("adopt", fd=self.fd, arena=self.arena, bytes=len(self.mem))[0]

    def stored(self, id, ranges):
        """Says that all of these payload ranges, of those that this rank stores, are in the arena. They are final."""
        if ranges:
            self.request("stored", id=id, ranges=ranges)

    def loaded(self, id, ok):
        """Reports once. What was copied may be used only if this returns: after Refused the pages may have been another's."""
        if id in self.reported:
            raise ValueError("this rank has reported the load of this id")
        self.reported.add(id)
        return self.request("loaded", id=id, ok=ok)[0]

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def obey(sessions, c):
    s = sessions[c["session"]]
    if c["do"] == "event":
        e = s.events.get(timeout=c["timeout"])
        return {"closed": True} if e is None else e
    if c["do"] == "read":
        return {"hex": s.mem[c["offset"]:c["offset"] + c["length"]].hex()}
    if c["do"] == "write":
        data = bytes.fromhex(c["hex"])
        s.mem[c["offset"]:c["offset"] + len(data)] = data
        return {}
    if c["do"] == "request":
        return s.request(c["t"], **c["fields"])[0]
    return getattr(s, c["do"])(**c.get("fields", {})) or {}


if __name__ == "__main__":
    sessions = collections.defaultdict(Session)
    for line in sys.stdin:
        try:
            out = {"result": obey(sessions, json.loads(line))}
        except Refused as e:
            out = {"refused": e.packet}
        except queue.Empty:
            out = {"timeout": True}
        except (OSError, ValueError) as e:
            out = {"failed": str(e)}
        print(json.dumps(out), flush=True)
