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
			for _, x := range []struct{ thought, content string }{{"a thought", ""}, {"", "an answer"},
				{"a thought", "an answer"}} {
				if x.content == "" && begin.Closed {
					continue // the request is not to think
				}
				prompt := tags.Continue(opening, x.thought, x.content)
				b := tags.Begin(prompt, true)
				if b.Header || b.Thinking != (x.content == "") || !tags.Continues(prompt, x.thought, x.content) {
					t.Errorf("%s: %+v: %q: %+v", c.name, x, prompt, b)
				}
			}
		}
	}
}
