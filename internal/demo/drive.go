package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/moai-dev/terraform-provider-moai/internal/demo/prompt"
	"github.com/moai-dev/terraform-provider-moai/internal/demo/proof"
	"github.com/moai-dev/terraform-provider-moai/internal/lab/plan"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/client"
	"github.com/moai-dev/terraform-provider-moai/internal/moaid/refengine/refmodel"
)

const (
	minPromptTokens = 2000
	answerTokens    = 160
	glimpseTokens   = 40 // enough to tell a right answer from a wrong one
	prefillEngine   = "prefill-0"
	decodeEngine    = "decode-0"
	model           = "moai/reciting"
)

// drive holds what the steps inside the lab's network namespace share.
type drive struct {
	Demo
	env      plan.Env
	tf       Terraform
	prefill  *client.Client
	decode   *client.Client
	endpoint string
	recital  prompt.Recital
	report   Report
}

// Drive runs init, plan, apply, the completion, its proof and the drift, inside
// the lab's network namespace. The report is complete even when an error says
// that something in it is not as it should be.
func (d Demo) Drive(ctx context.Context) (Report, error) {
	env, err := Lab{WS: d.WS}.Env(ctx)
	if err != nil {
		return Report{}, err
	}
	m, err := refmodel.Lookup(model)
	if err != nil {
		return Report{}, err
	}
	r := &drive{
		Demo: d, env: env, tf: Terraform{CLI: d.CLI, WS: d.WS, Out: d.N.Out},
		prefill: manage(env, PrefillHost), decode: manage(env, DecodeHost),
		recital: prompt.Make(minPromptTokens, m.Lag()+1, answerTokens),
	}
	defer r.prefill.Close()
	defer r.decode.Close()
	for _, step := range []func(context.Context) error{r.apply, r.completion, r.wrongWeights, r.secondPlan, r.drift} {
		if err := step(ctx); err != nil {
			return r.report, err
		}
	}
	if !r.report.OK() {
		return r.report, errors.New("not everything was as it should be, see the report")
	}
	return r.report, nil
}

func (r *drive) apply(ctx context.Context) error {
	if err := r.WS.CopyExample(); err != nil {
		return err
	}
	if err := r.WS.WriteVariables(r.env); err != nil {
		return err
	}
	r.N.Step("%s init: the provider comes from the mirror", r.name())
	if err := r.tf.Init(ctx); err != nil {
		return err
	}
	r.N.Step("%s plan: hosts are probed, engines compared, nothing is changed", r.name())
	if _, _, err := r.tf.Plan(ctx); err != nil {
		return err
	}
	r.N.Step("%s apply", r.name())
	if _, err := r.tf.Apply(ctx); err != nil {
		return err
	}
	out, err := r.tf.Outputs(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out["endpoint"], &r.endpoint); err != nil {
		return fmt.Errorf("output endpoint: %w", err)
	}
	r.report.Endpoint = r.endpoint
	r.N.Say("endpoint: %s", r.endpoint)
	return nil
}

func (r *drive) name() string { return r.CLI.Name() }

func (r *drive) completion(ctx context.Context) error {
	r.N.Step("A completion: read on %s, spoken on %s", PrefillHost, DecodeHost)
	w, err := newWitness(ctx, r.decode, decodeEngine)
	if err != nil {
		return err
	}
	r.N.print("          “")
	c, err := complete(ctx, r.endpoint, model, r.recital.Prompt, answerTokens, func(s string) { r.N.print("%s", s) })
	r.N.print("”\n")
	if err != nil {
		return err
	}
	e, t, err := w.evidence(ctx, c, "", r.recital.Answer)
	if err != nil {
		return err
	}
	alone, err := ask(ctx, r.decode, decodeEngine, model, r.recital.Prompt, answerTokens, nil, nil)
	if err != nil {
		return err
	}
	e.AloneText = alone.Text
	v := proof.Judge(e)
	noop, err := r.noop(ctx, c, alone.Text)
	if err != nil {
		return err
	}
	judged := proof.Judge(noop)
	r.report.NoopDetected = judged.SameTokens && !judged.KVUsed && noop.DecodeComputed == c.PromptTokens
	r.report.SameTokens = v.SameTokens
	r.report.DecodePromptComputed = e.DecodeComputed
	r.report.KVBytes, r.report.KVBytesExpected, r.report.Chunks = e.BytesMoved, e.BytesExpected, e.Chunks
	r.report.PromptTokens = c.PromptTokens
	r.report.TTFTMillis, r.report.ITLMillis = ms(c.TTFT), ms(c.MedianITL())
	if t != nil {
		r.report.Encryption = t.Encryption
	}
	sent, err := endedTransfer(ctx, r.prefill, c.Transfer, "send")
	if err != nil {
		return err
	}
	if sent != nil {
		r.report.Conversion, r.report.ValuesChanged = sent.Conversion, sent.ValuesClipped+sent.ValuesRounded
	}
	r.N.Say("route: %s", c.Route)
	r.N.Say("prompt %d tokens, TTFT %.0f ms, ITL %.1f ms (median of %d)", c.PromptTokens, r.report.TTFTMillis, r.report.ITLMillis, len(c.ITL))
	r.N.Say("KV: %d bytes arrived, %d expected from geometry, %d chunks, encryption %s", e.BytesMoved, e.BytesExpected, e.Chunks, r.report.Encryption)
	r.N.Say("conversion on the way: %s; values changed by it: %d", r.report.Conversion, r.report.ValuesChanged)
	r.N.Say("the decode engine computed %d prompt tokens itself, and says the same alone: %v", e.DecodeComputed, v.SameTokens)
	r.N.Say("a transfer that brings nothing gives the same text too, from %d tokens computed on %s, and is told apart: %v", noop.DecodeComputed, DecodeHost, r.report.NoopDetected)
	if !v.OK() {
		return errors.New(strings.Join(v.Failures, "; "))
	}
	return nil
}

// noop asks the decode engine for the same prompt with a transfer that no engine
// offers: everything about the run is as it was but that no
// KV crosses, so the decode engine computes the prompt itself.
func (r *drive) noop(ctx context.Context, c Completion, alone string) (proof.Evidence, error) {
	id, err := newTransferID()
	if err != nil {
		return proof.Evidence{}, err
	}
	w, err := newWitness(ctx, r.decode, decodeEngine)
	if err != nil {
		return proof.Evidence{}, err
	}
	params := map[string]any{
		"do_remote_prefill": true, "do_remote_decode": false, "transfer_id": id,
		"source_node": PrefillHost, "source_engine": "nobody", "remote_num_tokens": c.PromptTokens,
	}
	a, err := ask(ctx, r.decode, decodeEngine, model, r.recital.Prompt, answerTokens, params, nil)
	if err != nil {
		return proof.Evidence{}, err
	}
	e, _, err := w.evidence(ctx, Completion{Text: a.Text, PromptTokens: c.PromptTokens, Route: c.Route, Transfer: id}, alone, r.recital.Answer)
	return e, err
}

func (r *drive) wrongWeights(ctx context.Context) error {
	r.N.Step("Control: a prefill engine with other weights that claims to be the right one")
	genuine, err := r.prefill.GetEngine(ctx, prefillEngine, 0)
	if err != nil {
		return err
	}
	im := impostor{
		env: r.env, prefill: r.prefill, decode: r.decode, decoder: decodeEngine, genuine: *genuine, model: model, trueSeed: refmodel.DefaultSeed,
	}
	text, err := im.text(ctx, r.recital.Prompt, glimpseTokens)
	if err != nil {
		return err
	}
	r.report.WrongWeightsDiffer = text != r.recital.Answer[:glimpseTokens]
	r.N.Say("on its KV the decode engine says %q: other text, so the KV is what it reads", text)
	if !r.report.WrongWeightsDiffer {
		return errors.New("wrong weights on the prefill engine changed nothing: the KV is not used")
	}
	return nil
}

func (r *drive) secondPlan(ctx context.Context) error {
	r.N.Step("A second plan")
	changes, out, err := r.quiet().Plan(ctx)
	if err != nil {
		return err
	}
	r.report.SecondPlanEmpty = !changes
	if changes {
		return fmt.Errorf("the second plan is not empty:\n%s", out)
	}
	r.N.Say("is empty")
	return nil
}

func (r *drive) quiet() Terraform {
	t := r.tf
	t.Out = nil
	return t
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
