package e2e

import (
	"os"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/worker"
)

func TestMain(m *testing.M) {
	worker.ServeIfAsked()
	os.Exit(m.Run())
}
