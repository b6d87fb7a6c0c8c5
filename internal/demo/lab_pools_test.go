package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/demo/prompt"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

const poolsModel = "moai/reciting-wide"

// pools applies examples/pools onto the lab: two engines on each GPU host, with ranks,
// replicas, sockets and arenas of their own under hardened units. KV must cross from each prefill
// engine to each decode engine, and the next plan must be empty.
func (r *labRun) pools(t *testing.T) {
	ctx := t.Context()
	tf := r.poolsConfig(t)
	defer func() {
		if out, err := tf.Destroy(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("destroy: %v\n%s", err, out)
		}
	}()
	if _, err := tf.Apply(ctx); err != nil {
		t.Fatal(err)
	}
	if changes, out, err := tf.Plan(ctx); err != nil || changes {
		t.Errorf("the plan after the apply is not empty: %v\n%s", err, out)
	}
	outputs, err := tf.Outputs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var endpoint string
	var planned map[string]string
	if err := json.Unmarshal(outputs["endpoint"], &endpoint); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(outputs["conversions"], &planned); err != nil {
		t.Fatal(err)
	}
	m, err := refmodel.Lookup(poolsModel)
	if err != nil {
		t.Fatal(err)
	}
	recital := prompt.Make(m.Lag()+300, m.Lag()+1, glimpseTokens)
	p, d := manage(r.env, PrefillHost), manage(r.env, DecodeHost)
	defer p.Close()
	defer d.Close()
	for _, from := range []string{"prefill-0", "prefill-1"} {
		for _, to := range []string{"decode-0", "decode-1"} {
			t.Run(from+" to "+to, func(t *testing.T) {
				w := way{prefill: p, decode: d, from: from, to: to}
				conversion := w.check(t, recital)
				want, ok := planned[PrefillHost+"/"+from+" to "+DecodeHost+"/"+to]
				if !ok || conversion == "" || !strings.HasPrefix(want, conversion) {
					t.Errorf("converted %q, the plan said %q of %v", conversion, want, planned)
				}
			})
		}
	}
	c, err := inNamespaceComplete(ctx, r, endpoint, recital.Prompt)
	if err != nil || !strings.Contains(c, recital.Answer) {
		t.Errorf("the router answered %q, want %q: %v", c, recital.Answer, err)
	}
}

// inNamespaceComplete asks the router from where the hosts' addresses mean something.
func inNamespaceComplete(ctx context.Context, r *labRun, endpoint, text string) (string, error) {
	body, err := json.Marshal(map[string]any{"model": poolsModel, "prompt": text, "max_tokens": glimpseTokens, "temperature": 0})
	if err != nil {
		return "", err
	}
	argv := inside(r.env, "curl", "-sS", "--fail-with-body", "-H", "Content-Type: application/json", "--data-binary", "@-", endpoint+"/completions")
	out, err := command{stdin: strings.NewReader(string(body)), argv: argv}.run(ctx)
	if err != nil {
		return out, err
	}
	var answer struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Choices) != 1 {
		return out, fmt.Errorf("no completion: %w", errOrEOF(err))
	}
	return answer.Choices[0].Text, nil
}

// poolsConfig writes the example, with the lab's hosts as its variables. The lab's gateway has a user
// and a key of its own.
func (r *labRun) poolsConfig(t *testing.T) Terraform {
	t.Helper()
	tf := r.tf
	tf.Dir = t.TempDir()
	src := filepath.Join(r.d.WS.Repo, "examples", "pools")
	variables, err := os.ReadFile(filepath.Join(src, "variables.tf"))
	if err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile(filepath.Join(src, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(main)
	replace := func(old, with string) {
		if strings.Count(text, old) != 1 {
			t.Fatalf("examples/pools has %q %d times", old, strings.Count(text, old))
		}
		text = strings.Replace(text, old, with, 1)
	}
	replace("  ssh_profiles = {\n", fmt.Sprintf("  ssh_profiles = {\n    gateway = { user = %q, private_key = var.gateway_key }\n", r.env.Hosts[GatewayHost].User))
	replace(`host = var.gateway, profile = "nvidia"`, `host = var.gateway, profile = "gateway"`)
	known, err := os.ReadFile(r.env.KnownHosts)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"known_hosts": string(known), "gateway": r.env.Hosts[GatewayHost].Address}
	for name, h := range map[string]string{"h100": PrefillHost, "mi300x": DecodeHost} {
		values[name] = map[string]string{"host": r.env.Hosts[h].Address, "fabric": r.env.Hosts[h].FabricAddress}
	}
	for name, h := range map[string]string{"gateway_key": GatewayHost, "nvidia_key": PrefillHost, "amd_key": DecodeHost} {
		key, err := os.ReadFile(r.env.Hosts[h].PrivateKeyFile)
		if err != nil {
			t.Fatal(err)
		}
		values[name] = string(key)
	}
	vars, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"main.tf": text, "terraform.tfvars.json": string(vars),
		"variables.tf": string(variables) + "\nvariable \"gateway_key\" {\n  type      = string\n  sensitive = true\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(tf.Dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tf.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tf
}

// way is from one prefill engine to one decode engine. An idle router always takes the first of each
// pool, so the engines are asked straight.
type way struct {
	prefill, decode *client.Client
	from, to        string
}

// check makes one completion and returns how its KV was converted.
func (w way) check(t *testing.T, recital prompt.Recital) (conversion string) {
	t.Helper()
	ctx := t.Context()
	id, err := newTransferID()
	if err != nil {
		t.Fatal(err)
	}
	wit, err := newWitness(ctx, w.decode, w.to)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ask(ctx, w.prefill, w.from, poolsModel, recital.Prompt, 1, map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": id, "target_node": DecodeHost, "target_engine": w.to,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ask(ctx, w.decode, w.to, poolsModel, recital.Prompt, glimpseTokens, p.Params,
		http.Header{"X-Moai-Transfer": {id}, "X-Moai-Source": {PrefillHost + "/" + w.from}})
	if err != nil {
		t.Fatal(err)
	}
	if d.Text != recital.Answer {
		t.Errorf("the text is %q, want %q", d.Text, recital.Answer)
	}
	e, _, err := wit.evidence(ctx, Completion{Text: d.Text, PromptTokens: d.PromptTokens, Transfer: id}, "", recital.Answer)
	if err != nil {
		t.Fatal(err)
	}
	if e.TransferState != "committed" || e.DecodeComputed > 1 || e.BytesExpected < 1 || e.BytesMoved != e.BytesExpected {
		t.Errorf("the KV did not cross as it should: %+v", e)
	}
	sent, err := endedTransfer(ctx, w.prefill, id, "send")
	if err != nil || sent == nil {
		t.Fatalf("the prefill host's daemon knows no such transfer: %v", err)
	}
	if n := sent.ValuesClipped + sent.ValuesRounded; n != 0 {
		t.Errorf("%d values were changed", n)
	}
	return sent.Conversion
}
