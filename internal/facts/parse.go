package facts

// Parse reads a probe's answers. It never fails: what cannot be read is a finding.
func Parse(raw Raw) Facts {
	var f Facts
	return f
}
