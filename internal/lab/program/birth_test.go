package program

import (
	"os"
	"testing"
)

func TestBirthOf(t *testing.T) {
	t.Parallel()
	rest := " 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 77001 1 1\n"
	for stat, want := range map[string]string{
		"12 (sleep) S" + rest: "77001", "12 (a) b (c)) S" + rest: "77001", "12 (sleep) S 1": "", "": "",
		"12 (sleep) Z" + rest: "", "12 (sleep) X" + rest: "",
	} {
		if got := birthOf(stat); got != want {
			t.Errorf("%q: %q, want %q", stat, got, want)
		}
	}
	if got, err := Birth(os.Getpid()); err != nil || got == "" {
		t.Errorf("this process was started: %q, %v", got, err)
	}
}
