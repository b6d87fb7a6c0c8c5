// Command terraform-provider-moai serves the Terraform provider for fleets that run prefill and decode on different
// accelerators.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/moai-dev/terraform-provider-moai/internal/provider"
)

// version is set by the release build.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "serve for a debugger, which attaches by TF_REATTACH_PROVIDERS")
	flag.Parse()

	if !*debug {
		// A CLI that was killed cannot ask the provider to stop; without this, remote work would go on unseen.
		go provider.ExitWithParent()
	}
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address:         provider.Address,
		ProtocolVersion: 6,
		Debug:           *debug,
	})
	if err != nil {
		log.Fatal(err)
	}
}
