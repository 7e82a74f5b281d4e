package ggufgen

import (
	"container/heap"
	"math/rand/v2"
	"strings"
	"sync"
)

// MinVocab is the smallest vocabulary: the markers, one token per byte and a few merges.
const MinVocab = 320

// Token types as llama.cpp numbers them in tokenizer.ggml.token_type.
const (
	typeNormal  int32 = 1
	typeUnknown int32 = 2
	typeControl int32 = 3
)

// vocabulary has the values of the tokenizer.ggml.* keys: markers first, then the 256 bytes, then one token per merge.
type vocabulary struct {
	special []string
	tokens  []string
	types   []int32
	merges  []string // "left right", in order of rank
}

func (v *vocabulary) find(special string) (int, bool) {
	for i, s := range v.special {
		if s == special {
			return i, true
		}
	}
	return 0, false
}

// id returns the number of a marker every vocabulary has.
func (v *vocabulary) id(special string) uint32 {
	i, ok := v.find(special)
	if !ok {
		panic("ggufgen: no marker " + special)
	}
	return uint32(i)
}

func newVocabulary(size int, think bool, more ...string) *vocabulary {
	v := &vocabulary{special: []string{tokenEndOfText, tokenIMStart, tokenIMEnd}}
	if think {
		v.special = append(v.special, tokenThinkStart, tokenThinkEnd)
	}
	v.special = append(v.special, more...)
	for _, s := range v.special {
		v.tokens, v.types = append(v.tokens, s), append(v.types, typeControl)
	}
	for _, s := range byteRunes() {
		v.tokens = append(v.tokens, s)
	}
	words := corpus(size)
	tokens, merges := trainBPE(words, size-len(v.tokens))
	v.tokens = append(v.tokens, tokens...)
	v.merges = merges
	for len(v.types) < len(v.tokens) {
		v.types = append(v.types, typeNormal)
	}
	return v
}

// byteRunes maps each byte to the character byte-level BPE vocabularies write it as: printable Latin-1 stands for
// itself, the other 68 are numbered from U+0100 (so that a space is "Ġ"). After GPT-2's encoder.
var byteRunes = sync.OnceValue(func() (table [256]string) {
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			table[b] = string(b)
			continue
		}
		table[b] = string(next)
		next++
	}
	return table
})

// word is a pre-token and how often the imagined text holds it.
type word struct {
	text  string
	count int
}

// commonWords get the highest counts, in this order, so that even a small vocabulary has whole English words.
const commonWords = `the of and to in a is that for it as was with be by on not he his but at are this have from or had
an they which one you were all her she there would their we him been has when who will no more if out so up said what
its about than into them can only other time new some could these two may first then do any like my now over such our
man me even most made after also did many off before must well back through years much where your way down should
because long each just state people those too how little good world make very year still see own work men day get here
old life both between being under three never know same last another while us might great go come since against right
came take used himself few house use place during high without again home around small however found part once upon
number thought write question answer reason think model token system memory cache server client request language word
sentence paragraph story example function return value number list table code file line error test result data point
first second step next finally because therefore but maybe wait let check however simple correct problem solution`

// punctuation that real text repeats; indentation and blank lines matter to code and chat templates.
var punctuation = []string{"\n\n", "  ", "    ", "        ", "...", "--", "==", "()", "```", "//", ". ", "\n\n\n",
	"****", "<|", "|>", "</"}

// corpus returns a word list large enough to train size merges: common words, then words made of English-like syllables
// with counts falling by rank (Zipf). Always the same for the same size.
func corpus(size int) []word {
	var words []word
	seen := map[string]bool{}
	add := func(s string, n int) {
		if !seen[s] {
			seen[s] = true
			words = append(words, word{s, n})
		}
	}
	const top = 1_000_000
	for i, w := range strings.Fields(commonWords) {
		add(" "+w, top/(i+2))
		add(w, top/(8*(i+2)))
		add(strings.ToUpper(w[:1])+w[1:], top/(16*(i+2)))
	}
	for i, p := range punctuation {
		add(p, top/(20*(i+2)))
	}
	onsets := strings.Fields("b br c ch cl cr d dr f fl fr g gr h j k l m n p ph pl pr qu r s sc sh sl sp st str t " +
		"th tr v w")
	nuclei := strings.Fields("a e i o u ai ea ee ie oo ou er ar or")
	codas := strings.Fields("- - - - b ck d ft g l ll m n nd ng nt p r rt s ss st t th x")
	endings := strings.Fields("- - - - s ed ing er ly tion ment able ness ous ive al ity")
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return strings.TrimSuffix(from[rng.IntN(len(from))], "-") }
	// Every word trained to exhaustion becomes at least one token, so size words are enough.
	for rank := 300; len(words) < size+size/4; rank++ {
		var b strings.Builder
		b.WriteByte(' ')
		for range 1 + rng.IntN(3) {
			b.WriteString(pick(onsets) + pick(nuclei) + pick(codas))
		}
		b.WriteString(pick(endings))
		add(b.String(), 1+top/rank)
	}
	return words
}

// pair is two adjacent symbols of a word.
type pair struct{ left, right int32 }

// candidate is a pair in the queue with the count it had when it was put there.
type candidate struct {
	pair
	count int
}

// queue pops the pair of highest count; ties go to the older symbols, which makes training deterministic.
type queue []candidate

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(candidate)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	switch {
	case a.count != b.count:
		return a.count > b.count
	case a.left != b.left:
		return a.left < b.left
	}
	return a.right < b.right
}

// trainBPE is byte-pair encoding (Sennrich et al. 2016): again and again the most frequent adjacent pair becomes a
// token, until there are n new ones. Counts are kept incrementally and stale queue entries are skipped when popped,
// so training costs about one heap operation per change of a count. It returns the new tokens and the merges; when
// two merges spell the same token it appears once.
func trainBPE(words []word, n int) (tokens, merges []string) {
	table := byteRunes()
	symbols := make([]string, 0, 256+n)
	known := make(map[string]int32, 256+n)
	for i, s := range table {
		symbols = append(symbols, s)
		known[s] = int32(i)
	}
	split := make([][]int32, len(words))
	counts := map[pair]int{}
	where := map[pair][]int32{} // words that held the pair when it was noted; may hold a word twice or no longer
	for i, w := range words {
		for _, b := range []byte(w.text) {
			split[i] = append(split[i], int32(b))
		}
		for j := 1; j < len(split[i]); j++ {
			p := pair{split[i][j-1], split[i][j]}
			counts[p] += w.count
			where[p] = append(where[p], int32(i))
		}
	}
	q := make(queue, 0, len(counts))
	for p, c := range counts {
		q = append(q, candidate{p, c})
	}
	heap.Init(&q)
	for len(tokens) < n {
		if len(q) == 0 {
			panic("ggufgen: corpus too small for the vocabulary") // corpus() promises otherwise
		}
		best := heap.Pop(&q).(candidate)
		if best.count != counts[best.pair] {
			if c := counts[best.pair]; c > 0 {
				heap.Push(&q, candidate{best.pair, c})
			}
			continue
		}
		left, right := symbols[best.left], symbols[best.right]
		merges = append(merges, left+" "+right)
		id, ok := known[left+right]
		if !ok {
			id = int32(len(symbols))
			symbols = append(symbols, left+right)
			known[left+right] = id
			tokens = append(tokens, left+right)
		}
		changed := map[pair]bool{}
		for _, wi := range where[best.pair] {
			count, s := words[wi].count, split[wi]
			for j := 1; j < len(s); j++ {
				if s[j-1] != best.left || s[j] != best.right {
					continue
				}
				change := func(l, r int32, by int) {
					p := pair{l, r}
					counts[p] += by
					changed[p] = true
					if by > 0 {
						where[p] = append(where[p], wi)
					}
				}
				if j >= 2 {
					change(s[j-2], s[j-1], -count)
					change(s[j-2], id, count)
				}
				if j+1 < len(s) {
					change(s[j], s[j+1], -count)
					change(id, s[j+1], count)
				}
				s[j-1] = id
				s = append(s[:j], s[j+1:]...)
			}
			split[wi] = s
		}
		delete(counts, best.pair)
		delete(where, best.pair)
		for p := range changed {
			if c := counts[p]; c > 0 && p != best.pair {
				heap.Push(&q, candidate{p, c})
			}
		}
	}
	return tokens, merges
}
