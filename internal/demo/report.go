package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Report is the demo's last line.
type Report struct {
	SameTokens           bool    `json:"same_tokens"`
	DecodePromptComputed int     `json:"d_prompt_tokens_computed"`
	KVBytes              int64   `json:"kv_bytes"`
	KVBytesExpected      int64   `json:"kv_bytes_expected"`
	Chunks               int64   `json:"chunks"`
	Encryption           string  `json:"encryption"`
	Conversion           string  `json:"conversion"`     // what the prefill's daemon changed of the KV; "none" if nothing
	ValuesChanged        int64   `json:"values_changed"` // elements that the conversion could not preserve
	PromptTokens         int     `json:"prompt_tokens"`
	WrongWeightsDiffer   bool    `json:"wrong_weights_differ"`
	NoopDetected         bool    `json:"noop_detected"`
	SecondPlanEmpty      bool    `json:"second_plan_empty"`
	DriftShown           bool    `json:"drift_shown"`
	DriftHealed          bool    `json:"drift_healed"`
	TTFTMillis           float64 `json:"ttft_ms"`
	ITLMillis            float64 `json:"itl_ms"`
	Seconds              float64 `json:"seconds"`
	Endpoint             string  `json:"endpoint"`
}

// OK means that everything that the demo claims was seen.
func (r Report) OK() bool {
	return r.SameTokens && r.DecodePromptComputed <= 1 && r.KVBytes == r.KVBytesExpected && r.KVBytes > 0 &&
		r.converted() && r.WrongWeightsDiffer && r.NoopDetected && r.SecondPlanEmpty && r.DriftShown && r.DriftHealed
}

// converted means that the hosts' formats differ, and that every value survived.
func (r Report) converted() bool {
	return r.Conversion != "" && r.Conversion != "none" && r.ValuesChanged == 0
}

// Narrator says what happens, with the time since the start.
type Narrator struct {
	Out   io.Writer
	Start time.Time
}

func (n Narrator) elapsed() string { return fmt.Sprintf("%5.1fs", time.Since(n.Start).Seconds()) }

// Step announces a step.
func (n Narrator) Step(format string, args ...any) {
	n.print("\n[%s] ▶ %s\n", n.elapsed(), fmt.Sprintf(format, args...))
}

// Say prints a finding within a step.
func (n Narrator) Say(format string, args ...any) {
	n.print("[%s]   %s\n", n.elapsed(), fmt.Sprintf(format, args...))
}

func (n Narrator) print(format string, args ...any) {
	// Output to a closed terminal is no reason to leave a lab half built.
	_, _ = fmt.Fprintf(n.Out, format, args...)
}

// JSON prints v as one line.
func (n Narrator) JSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	n.print("%s\n", b)
	return nil
}
