package acctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// CLI makes plugin-testing use the Terraform or OpenTofu that is there, with no configuration of the user's. It skips the
// test where there is none: the tests of pure packages need none. With MOAI_REQUIRE set, it fails the test.
func CLI(t *testing.T) {
	t.Helper()
	bin := os.Getenv("TF_ACC_TERRAFORM_PATH")
	for _, name := range []string{"terraform", "tofu"} {
		if bin != "" {
			break
		}
		if p, err := exec.LookPath(name); err == nil {
			bin = p
		}
	}
	if bin == "" {
		const missing = "no terraform or tofu in PATH: acceptance tests need one (1.11 or newer)"
		if os.Getenv("MOAI_REQUIRE") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	rc := filepath.Join(t.TempDir(), "cli.rc")
	if err := os.WriteFile(rc, []byte("disable_checkpoint = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TF_ACC_TERRAFORM_PATH", bin)
	t.Setenv("TF_CLI_CONFIG_FILE", rc)
	t.Setenv("CHECKPOINT_DISABLE", "1")
	if filepath.Base(bin) == "tofu" {
		t.Setenv("TF_ACC_PROVIDER_NAMESPACE", "hashicorp")
		t.Setenv("TF_ACC_PROVIDER_HOST", "registry.opentofu.org")
	}
	for _, v := range []string{"MOAI_SSH_KNOWN_HOSTS", "MOAI_SSH_CONNECT_TIMEOUT", "MOAI_SSH_PRIVATE_KEY"} {
		t.Setenv(v, "")
	}
}
