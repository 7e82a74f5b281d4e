package meridian

import "testing"

// TestContinue: of each family, a prompt that ends within an answer ends in its content, and one that ends within a
// thought ends in the thought, whatever the template left open before.
func TestContinue(t *testing.T) {
	for _, c := range familyCases {
		for _, tokens := range [][]string{c.tokens, nil} {
			v := bytesVocab([]string{"word "}, append([]string{eog, "<|im_start|>"}, tokens...)...)
			tags := detectFor(t, v, c.template)
			if !tags.Known() {
				continue
			}
			opening := "<|im_start|>" + c.prompt
			begin := tags.Begin(opening, false)
			for _, x := range []Started{{Thought: "a thought", Open: true}, {Thought: "a thought"},
				{Content: "an answer"}, {Thought: "a thought", Content: "an answer"}} {
				if x.Open && begin.Closed {
					continue // the request is not to think
				}
				prompt := tags.Continue(opening, x)
				b := tags.Begin(prompt, true)
				if b.Header || b.Thinking != x.Open || !tags.Continues(prompt, x) {
					t.Errorf("%s: %+v: %q: %+v", c.name, x, prompt, b)
				}
			}
		}
	}
}
