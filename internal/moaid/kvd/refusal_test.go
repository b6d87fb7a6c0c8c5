package kvd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/enginesock"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/transfer"
)

// What an engine is refused for is told to the operator until the session is open,
// and as going on only while it does.
func TestRefusalIsTold(t *testing.T) {
	n := newNode(t, "p", nil)
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), registration(n, "prefill", "prefill", testFingerprint())))
	hello := func(edit func(*enginesock.Hello)) {
		h := enginesock.Hello{Version: enginesock.Version, Engine: "prefill", Generation: newID(), Session: enginesock.Scheduler, World: 2, Fingerprint: testFingerprint()}
		edit(&h)
		if _, _, err := dialRaw(t, n).ask(&h, nil); err != nil {
			t.Fatal(err)
		}
	}
	status := func() *api.EngineStatus {
		return must[*api.EngineStatus](t, "status")(n.c.GetEngine(t.Context(), "prefill", 0))
	}
	if st := status(); st.Refused != "" || strings.Contains(st.Reason, "refused") {
		t.Fatalf("before any session: %q %q", st.Refused, st.Reason)
	}
	for code, edit := range map[enginesock.Code]func(*enginesock.Hello){
		enginesock.CodeVersion: func(h *enginesock.Hello) { h.Version++ },
		enginesock.CodeFingerprint: func(h *enginesock.Hello) {
			h.Fingerprint.Model = kvcache.Model{Config: strings.Repeat("x", 128), Weights: "y", Tokenizer: "z"}
		},
		enginesock.CodeBadRequest: func(h *enginesock.Hello) { h.World = 3 },
	} {
		hello(edit)
		if st := status(); st.Refused != string(code) || !strings.Contains(st.Reason, "scheduler was refused ("+string(code)+")") || len(st.Reason) > 1000 {
			t.Errorf("%s: %q %q", code, st.Refused, st.Reason)
		}
	}
	if err := n.d.own.call(t.Context(), func() { n.d.engines["prefill"].refused.at -= transfer.Instant(refusalLife) + 1 }); err != nil {
		t.Fatal(err)
	}
	if st := status(); st.Refused != "" || !strings.Contains(st.Reason, "was refused") {
		t.Errorf("a refusal that is over: %q %q", st.Refused, st.Reason)
	}
	hello(func(h *enginesock.Hello) { h.Session, h.Rank = enginesock.Worker, 1 })
	if st := status(); !strings.Contains(st.Reason, "was refused") {
		t.Errorf("another session's success took it away: %q", st.Reason)
	}
	hello(func(*enginesock.Hello) {})
	if st := status(); strings.Contains(st.Reason, "refused") {
		t.Errorf("after success: %q", st.Reason)
	}
}

// Any user may say hello in an engine's name, and must not give it a bad one.
func TestRefusalOfStrangersIsNotTold(t *testing.T) {
	for what, c := range map[string]struct {
		uid  int
		unit string
		told bool
	}{
		"another user":               {os.Getuid() + 1, "", false},
		"another user in any unit":   {os.Getuid() + 1, "no-such.service", false},
		"the user in no unit of its": {os.Getuid(), "no-such.service", true},
	} {
		n := newNode(t, "p", nil)
		reg := registration(n, "prefill", "prefill", testFingerprint())
		reg.UID, reg.Unit = c.uid, c.unit
		must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), reg))
		for version, code := range map[int]enginesock.Code{enginesock.Version: enginesock.CodeUnauthorized, 99: enginesock.CodeVersion} {
			h := enginesock.Hello{Version: version, Engine: "prefill", Generation: newID(), Session: enginesock.Scheduler, World: 2, Fingerprint: testFingerprint()}
			r, _, err := dialRaw(t, n).ask(&h, nil)
			e, is := r.(*enginesock.Error)
			if err != nil || !is || e.Code != code {
				t.Fatalf("%s: %+v %v", what, r, err)
			}
		}
		want := ""
		if c.told { // that it is of another version is told only of a process that is the engine's
			want = string(enginesock.CodeUnauthorized)
		}
		if st := must[*api.EngineStatus](t, "status")(n.c.GetEngine(t.Context(), "prefill", 0)); st.Refused != want {
			t.Errorf("%s: %q %q", what, st.Refused, st.Reason)
		}
	}
}

// A client keeps asking, so that its refusal goes on being told.
func TestRefusalGoesOnWithItsClient(t *testing.T) {
	n := newNode(t, "p", nil)
	must[*api.EngineStatus](t, "engine")(n.c.PutEngine(t.Context(), registration(n, "prefill", "prefill", testFingerprint())))
	other := testFingerprint()
	other.Storage.BlockSize, other.Storage.KernelBlock = 32, 32
	c := enginesock.NewScheduler(enginesock.Identity{Path: filepath.Join(n.dir, EngineSocket),
		Hello: enginesock.Hello{Engine: "prefill", Generation: newID(), Session: enginesock.Scheduler, World: 2, Fingerprint: other}}, nil, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	var first, last transfer.Instant
	eventually(t, "the refusal is repeated", func() bool {
		_ = n.d.own.call(t.Context(), func() { last = n.d.engines["prefill"].refused.at })
		if first == 0 {
			first = last
		}
		return first != 0 && last != first
	})
	if gap := last.Sub(first); gap > refusalLife/2 {
		t.Errorf("%v between two of them", gap)
	}
	st := must[*api.EngineStatus](t, "status")(n.c.GetEngine(t.Context(), "prefill", 0))
	if st.Refused != string(enginesock.CodeFingerprint) || !strings.Contains(st.Reason, "storage.block_size") {
		t.Errorf("%q %q", st.Refused, st.Reason)
	}
}
