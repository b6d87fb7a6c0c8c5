package ssh

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// redactInPieces writes s in the pieces that cuts say and returns what came out.
func redactInPieces(t interface{ Fatal(...any) }, r *Redactor, s string, cuts []int) string {
	var out bytes.Buffer
	w := r.Writer(&out)
	for _, n := range cuts {
		n = min(n, len(s))
		if _, err := w.Write([]byte(s[:n])); err != nil {
			t.Fatal(err)
		}
		s = s[n:]
	}
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestRedactStream: however a text is cut, the stream gives what the whole gives, and no secret is left.
func TestRedactStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOfN(rapid.SampledFrom([]rune("abX")), 4, 7, -1)
		secrets := rapid.SliceOfN(letters, 1, 3).Draw(t, "secrets")
		var r *Redactor
		{
			var list []Secret
			for _, s := range secrets {
				list = append(list, Secret(s))
			}
			r = NewRedactor(list...)
		}
		parts := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(secrets), rapid.StringOfN(rapid.SampledFrom([]rune("abX-")), 0, 5, -1))).Draw(t, "parts")
		text := strings.Join(parts, "")
		cuts := rapid.SliceOf(rapid.IntRange(0, 4)).Draw(t, "cuts")
		whole, streamed := r.String(text), redactInPieces(t, r, text, cuts)
		if whole != streamed {
			t.Fatalf("whole %q, streamed %q", whole, streamed)
		}
		for _, s := range secrets {
			if strings.Contains(strings.ReplaceAll(whole, Redacted, "\x00"), s) {
				t.Fatalf("%q still holds %q", whole, s)
			}
		}
	})
}

func FuzzRedact(f *testing.F) {
	f.Add("hunter22", "the password is hunter22.", uint8(20))
	f.Add("aaaa", "aaaaaaa", uint8(3))
	f.Fuzz(func(t *testing.T, secret, text string, cut uint8) {
		r := NewRedactor(Secret(secret))
		whole := r.String(text)
		if got := redactInPieces(t, r, text, []int{int(cut)}); got != whole {
			t.Fatalf("whole %q, streamed %q", whole, got)
		}
		if len(secret) >= minSecret && !strings.Contains(Redacted, secret) && strings.Contains(strings.ReplaceAll(whole, Redacted, "\x00"), secret) {
			t.Fatalf("%q still holds %q", whole, secret)
		}
	})
}

func TestRedactKeyByLine(t *testing.T) {
	key := Secret("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAA\nQyNTUxOQAAACBsecond\n-----END OPENSSH PRIVATE KEY-----\n")
	r := NewRedactor(key)
	got := r.String("    QyNTUxOQAAACBsecond and -----BEGIN OPENSSH PRIVATE KEY-----")
	if want := "    [redacted] and -----BEGIN OPENSSH PRIVATE KEY-----"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSecretNeverPrints(t *testing.T) {
	s := Secret("hunter22")
	tg := Target{Host: "h", User: "u", PrivateKey: s, Become: Become{Password: s}, Bastions: []Hop{{Host: "b", PrivateKey: s}}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if got := fmt.Sprintf(verb+" "+verb, s, tg); strings.Contains(got, "hunter22") {
			t.Errorf("%s prints the secret: %s", verb, got)
		}
	}
	if b, err := s.MarshalText(); err != nil || string(b) != secretText {
		t.Errorf("MarshalText = %q, %v", b, err)
	}
}
