package demo

import "testing"

func TestMetric(t *testing.T) {
	text := []byte("# HELP a_total x\n# TYPE a_total counter\na_total{k=\"v}\"} 3\na_total{k=\"w\"} 4 1700000000\na_total_other 9\nb 1e3\n")
	if v, err := metric(text, "a_total"); err != nil || v != 7 {
		t.Errorf("a_total is %v, %v", v, err)
	}
	if v, err := metric(text, "b"); err != nil || v != 1000 {
		t.Errorf("b is %v, %v", v, err)
	}
	if _, err := metric(text, "c"); err == nil {
		t.Error("a metric that is not there must be an error, not 0")
	}
}
