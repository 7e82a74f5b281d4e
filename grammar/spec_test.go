package grammar

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// spec is a grammar of the tests with an independent matcher, which shares no code with the package: for every part it
// computes the ends of the texts that begin at a position.
type spec struct {
	op       string // lit, re, seq, alt, rep, any, rule
	text     string
	children []*spec
	min, max int
	members  []Member // bounds; the nodes are children[1:]
	rule     string
}

type specs map[string]*spec // by rule; root is the start

func (s *spec) String() string {
	var children []string
	for _, k := range s.children {
		children = append(children, k.String())
	}
	switch s.op {
	case "lit":
		return fmt.Sprintf("%q", s.text)
	case "re":
		return "/" + s.text + "/"
	case "seq":
		return "(" + strings.Join(children, " ") + ")"
	case "alt":
		return "(" + strings.Join(children, " | ") + ")"
	case "rep":
		return fmt.Sprintf("%s{%d,%d}", children[0], s.min, s.max)
	case "any":
		return fmt.Sprintf("any%v{%d,%d}(%s)", s.members, s.min, s.max, strings.Join(children, ", "))
	}
	return s.rule
}

func (g specs) String() string {
	var out []string
	for _, name := range slices.Sorted(mapKeys(g)) {
		out = append(out, name+" = "+g[name].String())
	}
	return strings.Join(out, "; ")
}

func mapKeys(g specs) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range g {
			if !yield(k) {
				return
			}
		}
	}
}

// build adds the rules to a Builder and returns the grammar.
func (g specs) build(l Limits) (*Grammar, error) {
	b := NewBuilder(l)
	rules := map[string]Node{}
	for _, name := range slices.Sorted(mapKeys(g)) {
		rules[name] = b.Rule(name)
	}
	var node func(s *spec) Node
	node = func(s *spec) Node {
		var children []Node
		for _, k := range s.children {
			children = append(children, node(k))
		}
		switch s.op {
		case "lit":
			return b.Literal(s.text)
		case "re":
			e, err := b.Regex().Parse(s.text, regex.Whole)
			if err != nil {
				panic(err)
			}
			return b.Terminal(e)
		case "seq":
			return b.Seq(children...)
		case "alt":
			return b.Alt(children...)
		case "rep":
			return b.Repeat(children[0], s.min, s.max)
		case "any":
			members := slices.Clone(s.members)
			for i := range members {
				members[i].Node = children[1+i]
			}
			return b.Unordered(children[0], s.min, s.max, members...)
		}
		return rules[s.rule]
	}
	for name, s := range g {
		b.Define(rules[name], node(s))
	}
	return b.Build(rules["root"])
}

// recogniser answers for one text.
type recogniser struct {
	g    specs
	text string
	memo map[memoKey]map[int]bool
	open map[memoKey]bool
	// What a part that begins with itself was found to match, a round before; round says that another one is needed.
	before map[memoKey]map[int]bool
	round  bool
}

type memoKey struct {
	s  *spec
	at int
}

// accepts reports whether text is one of g's.
func (g specs) accepts(text string) bool {
	r := &recogniser{g: g, text: text, open: map[memoKey]bool{}, before: map[memoKey]map[int]bool{}}
	for {
		r.memo, r.round = map[memoKey]map[int]bool{}, false
		if out := r.ends(g["root"], 0); !r.round {
			return out[len(text)]
		}
	}
}

func (r *recogniser) ends(s *spec, at int) map[int]bool {
	key := memoKey{s, at}
	if e, ok := r.memo[key]; ok {
		return e
	}
	if r.open[key] {
		if r.before[key] == nil {
			r.before[key] = map[int]bool{}
		}
		return r.before[key]
	}
	r.open[key] = true
	out := map[int]bool{}
	switch s.op {
	case "lit":
		if strings.HasPrefix(r.text[at:], s.text) {
			out[at+len(s.text)] = true
		}
	case "re":
		re := compiled("^(?:" + s.text + ")$")
		for end := at; end <= len(r.text); end++ {
			if re.MatchString(r.text[at:end]) {
				out[end] = true
			}
		}
	case "seq":
		now := map[int]bool{at: true}
		for _, k := range s.children {
			now = r.then(now, k)
		}
		out = now
	case "alt":
		for _, k := range s.children {
			for e := range r.ends(k, at) {
				out[e] = true
			}
		}
	case "rep":
		now := map[int]bool{at: true}
		for n := 0; len(now) > 0; n++ {
			if n >= s.min {
				before := len(out)
				for e := range now {
					out[e] = true
				}
				if len(out) == before && n > s.min+len(r.text)+1 {
					break
				}
			}
			if s.max >= 0 && n >= s.max || n > s.min+len(r.text)+2 {
				break
			}
			now = r.then(now, s.children[0])
		}
	case "any":
		r.unordered(s, make([]int, len(s.members)), 0, map[int]bool{at: true}, out)
	case "rule":
		out = r.ends(r.g[s.rule], at)
	}
	delete(r.open, key)
	if b := r.before[key]; b != nil && len(b) != len(out) {
		r.before[key], r.round = out, true
	}
	r.memo[key] = out
	return out
}

func (r *recogniser) then(from map[int]bool, k *spec) map[int]bool {
	out := map[int]bool{}
	for at := range from {
		for e := range r.ends(k, at) {
			out[e] = true
		}
	}
	return out
}

func (r *recogniser) unordered(s *spec, seen []int, sum int, from, out map[int]bool) {
	ok := sum >= s.min
	for i, m := range s.members {
		ok = ok && seen[i] >= m.Min
	}
	if ok {
		for e := range from {
			out[e] = true
		}
	}
	if s.max >= 0 && sum >= s.max {
		return
	}
	if sum > 0 {
		from = r.then(from, s.children[0])
	}
	for i, m := range s.members {
		if m.Max >= 0 && seen[i] >= m.Max {
			continue
		}
		next := map[int]bool{} // a member is not empty
		for at := range from {
			for e := range r.ends(s.children[1+i], at) {
				if e > at {
					next[e] = true
				}
			}
		}
		if len(next) > 0 {
			seen[i]++
			r.unordered(s, seen, sum+1, next, out)
			seen[i]--
		}
	}
}

var compiledRE = map[string]*regexp.Regexp{}

func compiled(re string) *regexp.Regexp {
	if compiledRE[re] == nil {
		compiledRE[re] = regexp.MustCompile(re)
	}
	return compiledRE[re]
}

// randomSpecs returns a small grammar over the letters a, b and c.
func randomSpecs(r *rand.Rand) specs {
	names := []string{"root", "x", "y"}[:1+r.IntN(3)]
	g := specs{}
	for _, n := range names {
		g[n] = randomSpec(r, names, 3)
	}
	return g
}

var someExpressions = []string{"a*", "[ab]", "b?c", "(ab|c)+", "[abc]{1,3}", "a{2}", "c", "(a|bc)*b"}

func randomSpec(r *rand.Rand, names []string, depth int) *spec {
	children := func(n int) []*spec {
		var out []*spec
		for range n {
			out = append(out, randomSpec(r, names, depth-1))
		}
		return out
	}
	op := r.IntN(9)
	if depth == 0 {
		op = r.IntN(3)
	}
	switch op {
	case 0, 1:
		return &spec{op: "lit", text: []string{"", "a", "b", "ab", "ca", "c"}[r.IntN(6)]}
	case 2:
		return &spec{op: "re", text: someExpressions[r.IntN(len(someExpressions))]}
	case 3, 4:
		return &spec{op: "seq", children: children(1 + r.IntN(3))}
	case 5:
		return &spec{op: "alt", children: children(1 + r.IntN(3))}
	case 6:
		lo := r.IntN(3)
		return &spec{op: "rep", children: children(1), min: lo, max: []int{Unbounded, lo, lo + 1, lo + 2}[r.IntN(4)]}
	case 7:
		n := 1 + r.IntN(3)
		separator := &spec{op: "lit", text: []string{",", "a", ""}[r.IntN(3)]}
		s := &spec{op: "any", children: append([]*spec{separator}, children(n)...)}
		for range n {
			lo := r.IntN(2)
			s.members = append(s.members, Member{Min: lo, Max: []int{Unbounded, lo + 1, lo + 2}[r.IntN(3)]})
		}
		s.min, s.max = r.IntN(3), []int{Unbounded, 2, 3}[r.IntN(3)]
		return s
	}
	return &spec{op: "rule", rule: names[r.IntN(len(names))]}
}
