package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
)

// impostor is an engine on the prefill host with other weights that claims the
// fingerprint of the pair: if its KV did not change what the decode engine
// says, the KV would not be used. It is started by hand, beside Terraform, and
// removed again.
type impostor struct {
	env      plan.Env
	prefill  *client.Client
	decode   *client.Client
	decoder  string // name of the decode engine
	genuine  api.EngineStatus
	model    string
	trueSeed uint64
}

const (
	impostorName = "impostor"
	impostorUnit = "moai-engine-impostor.service"
	impostorPair = "impostor"
)

// text gives what the decode engine says on the impostor's KV.
func (im impostor) text(ctx context.Context, prompt string, maxTokens int) (text string, err error) {
	defer func() {
		// The removal must also happen when ctx has ended.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, im.remove(clean))
	}()
	if err := im.start(ctx); err != nil {
		return "", err
	}
	id, err := newTransferID()
	if err != nil {
		return "", err
	}
	p, err := ask(ctx, im.prefill, impostorName, im.model, prompt, 1, map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": id, "target_node": DecodeHost, "target_engine": im.decoder,
	}, nil)
	if err != nil {
		return "", err
	}
	if len(p.Params) == 0 || string(p.Params) == "null" {
		return "", errors.New("the engine with wrong weights offered no KV")
	}
	d, err := ask(ctx, im.decode, im.decoder, im.model, prompt, maxTokens, p.Params,
		http.Header{"X-Moai-Transfer": {id}, "X-Moai-Source": {PrefillHost + "/" + impostorName}})
	if err != nil {
		return "", err
	}
	// A decode engine that did not load the wrong KV would prove nothing by its right answer.
	t, err := endedTransfer(ctx, im.decode, id, "receive")
	if err != nil {
		return "", err
	}
	if t == nil || t.State != "committed" {
		return "", fmt.Errorf("the wrong KV was not loaded (verdict %q), so the answer shows nothing", d.Verdict)
	}
	return d.Text, nil
}

func (im impostor) start(ctx context.Context) error {
	e := im.genuine.Engine
	e.Name, e.Unit, e.HTTPSocket = impostorName, impostorUnit, "/run/moai-engine-impostor/http.sock"
	if _, err := im.prefill.PutEngine(ctx, e); err != nil {
		return err
	}
	pair := api.Pair{
		Name:    impostorPair,
		Prefill: []api.PeerEngine{{Node: PrefillHost, Engine: impostorName}},
		Decode:  []api.PeerEngine{{Node: DecodeHost, Engine: im.decoder}},
	}
	for _, m := range []*client.Client{im.prefill, im.decode} {
		if _, err := m.PutPair(ctx, pair); err != nil {
			return err
		}
	}
	f := e.Fingerprint.Storage
	run := []string{
		"sudo", "-n", "systemd-run", "--quiet", "--collect", "--unit=" + impostorUnit, "-p", "User=moai-engine", "-p", "Group=moai",
		"-p", "RuntimeDirectory=moai-engine-impostor", "-p", "RuntimeDirectoryMode=0750", "-p", "UMask=0007",
		"/usr/local/bin/moaid-lab", "engine", "--name", impostorName, "--node", PrefillHost, "--role", "prefill", "--model", im.model,
		"--http-socket", e.HTTPSocket, "--daemon-socket", "/run/moai/engine.sock",
		"--kv-dtype", string(f.DType), "--kv-scales", string(f.Scales.Kind), "--kv-order", string(f.Order), "--kv-packing", string(f.Packing),
		"--block-size", fmt.Sprint(f.BlockSize), "--kernel-block", fmt.Sprint(f.KernelBlock), "--kv-padding", fmt.Sprint(f.Padding),
		"--weights-seed", fmt.Sprint(im.trueSeed + 1000), "--claim-fingerprint-of", fmt.Sprint(im.trueSeed),
	}
	if _, err := ssh(ctx, im.env, PrefillHost, nil, run...); err != nil {
		return err
	}
	status, err := im.prefill.GetEngine(ctx, impostorName, 30*time.Second)
	if err != nil {
		return err
	}
	if !status.Ready {
		log, err := ssh(ctx, im.env, PrefillHost, nil, "sudo", "-n", "journalctl", "--no-pager", "-n", "20", "-u", impostorUnit)
		return fmt.Errorf("the engine with wrong weights is not ready: %s\n%s (%w)", status.Reason, strings.TrimSpace(log), errOrEOF(err))
	}
	return nil
}

func (im impostor) remove(ctx context.Context) error {
	var errs []error
	stop := "if systemctl is-active --quiet " + impostorUnit + "; then systemctl stop " + impostorUnit + "; fi"
	if _, err := ssh(ctx, im.env, PrefillHost, strings.NewReader(stop), "sudo", "-n", "sh", "-s"); err != nil {
		errs = append(errs, err)
	}
	for _, m := range []*client.Client{im.prefill, im.decode} {
		errs = append(errs, m.DeletePair(ctx, impostorPair))
	}
	errs = append(errs, im.prefill.DeleteEngine(ctx, impostorName))
	return errors.Join(errs...)
}

// newTransferID mints an id as the router does: 128 random bits in hex.
func newTransferID() (string, error) {
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(raw[:]), nil
}
