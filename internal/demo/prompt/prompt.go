// Package prompt makes a prompt whose right answer is known: for weights that
// repeat the token a fixed lag back, the answer is the text that begins a lag
// before the prompt's end. Pure.
package prompt

import "strings"

// sentences are read on the prefill host and spoken on the decode host.
var sentences = []string{
	"The prompt is read on one machine and spoken on another.",
	"What the first has understood of it, it has written down: two vectors a layer, a head and a token.",
	"These notes are all that crosses. The words themselves stay where they were read.",
	"The machine that speaks has never seen the text before; it only looks things up in the notes.",
	"If a page of the notes were lost, or laid at another place, it would say something else here.",
	"Reading is done best by the one that multiplies fastest, for all words can be read at once.",
	"Speaking is done best by the one with the widest memory, for each word needs all the notes again.",
	"So neither has to be good at both, and each is kept busy with what it does well.",
	"The notes travel in chunks, sealed one by one, no faster than the speaker can put them away.",
	"A chunk that was changed on its way does not open, and nothing of it is used.",
	"When the last one has arrived, the speaker says so, and the reader forgets.",
}

// Recital is a prompt and its right answer.
type Recital struct {
	Prompt string
	Answer string // the first bytes that the reciting weights must give
}

// Make gives a prompt of at least minTokens byte tokens and the answer of n
// bytes that weights with this lag give. n must not exceed lag.
func Make(minTokens, lag, n int) Recital {
	text := strings.Join(sentences, " ")
	passage := fill(text, lag)
	var b strings.Builder
	for i := 0; b.Len()+lag < minTokens; i++ {
		b.WriteString(sentences[i%len(sentences)])
		b.WriteByte('\n')
	}
	return Recital{Prompt: b.String() + passage, Answer: passage[:n]}
}

// fill repeats text to exactly n bytes.
func fill(text string, n int) string {
	text += " "
	return strings.Repeat(text, n/len(text)+1)[:n]
}
