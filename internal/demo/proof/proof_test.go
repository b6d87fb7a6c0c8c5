package proof

import "testing"

func good() Evidence {
	return Evidence{
		Text: "abc def", AloneText: "abc def", PromptTokens: 2000, DecodeComputed: 1, BytesMoved: 4096, BytesExpected: 4096,
		Chunks: 1, TransferState: "committed", ExpectedRecitationPart: "abc",
	}
}

func TestJudge(t *testing.T) {
	if v := Judge(good()); !v.OK() || !v.KVUsed || !v.SameTokens {
		t.Fatalf("good evidence was refused: %v", v.Failures)
	}
	bad := map[string]func(*Evidence){
		"other text":             func(e *Evidence) { e.Text = "abc xyz" },
		"no text":                func(e *Evidence) { e.Text, e.AloneText = "", "" },
		"no recitation":          func(e *Evidence) { e.ExpectedRecitationPart = "xyz" },
		"decode computed prompt": func(e *Evidence) { e.DecodeComputed = 2000 },
		"no bytes":               func(e *Evidence) { e.BytesMoved = 0 },
		"too many bytes":         func(e *Evidence) { e.BytesMoved++ },
		"nothing expected":       func(e *Evidence) { e.BytesMoved, e.BytesExpected = 0, 0 },
		"not committed":          func(e *Evidence) { e.TransferState = "aborted" },
		"decode only":            func(e *Evidence) { e.FellBackToDecodeOnly = true },
	}
	for name, spoil := range bad {
		e := good()
		spoil(&e)
		if Judge(e).OK() {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNoOpIsDetected(t *testing.T) {
	e := good()
	e.DecodeComputed, e.BytesMoved, e.TransferState = e.PromptTokens, 0, ""
	if v := Judge(e); v.KVUsed || v.OK() || !v.SameTokens {
		t.Fatalf("a run that recomputes everything on decode has the same tokens and must still fail: %+v", v)
	}
}
