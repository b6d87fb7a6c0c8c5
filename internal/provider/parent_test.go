package provider

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

const roleEnv = "MOAI_TEST_ROLE"

// TestMain also plays the CLI and the provider that it starts, for TestExitWithParent.
func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "cli":
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleEnv+"=provider")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			os.Exit(3)
		}
		_ = child.Wait() // until killed
		os.Exit(0)
	case "provider":
		_, _ = os.Stdout.WriteString("up\n")                  // the test waits for it
		time.AfterFunc(25*time.Second, func() { os.Exit(4) }) // if it fails, nothing is left behind
		exitWithParent(parent, 10*time.Millisecond, 10*time.Millisecond)
	}
	os.Exit(m.Run())
}

// A CLI that was killed takes the provider with it.
func TestExitWithParent(t *testing.T) {
	cli := exec.CommandContext(t.Context(), os.Args[0])
	cli.Env = append(os.Environ(), roleEnv+"=cli")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cli.Stdout = w
	if err := cli.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the children have it
	if err := r.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(r)
	if line, err := in.ReadString('\n'); err != nil {
		t.Fatalf("the provider said %q, %v", line, err)
	}
	if err := cli.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cli.Wait() // killed
	// The pipe ends when the provider, its last writer, has ended.
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Errorf("the provider outlived the CLI: %v", err)
	}
}
