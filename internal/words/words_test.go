package words

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

type colour uint8

func (c *colour) AppendWord(dst []byte) []byte { return append(dst, [...]string{"red", "blue"}[*c]...) }
func (c *colour) SetWord(text string) error {
	if text != "red" && text != "blue" {
		return UnknownError(text)
	}
	*c = colour(len(text) - 3)
	return nil
}

type Spec struct {
	Owner uint32  `words:"owner,always"`
	Rate  float64 `words:"rate"`
}

type limits struct {
	Most int `words:"most"`
}

type line struct {
	ID uint64 `words:"id,first"`
	*Spec
	Colour colour        `words:",always"`
	Took   time.Duration `words:"took"`
	Rows   int           `words:"rows,min=1"`
	Less   int           `words:"less,min=-1"`
	Think  bool          `words:"think"`
	On     bool          `words:"on,pair"`
	Name   string        `words:"name"`
	Next   []int         `words:"next"`
	Limits [2]limits     `words:"in_,out_"`
	Plain  int
}

func TestWords(t *testing.T) {
	c := Of[line]()
	for want, v := range map[string]line{
		" 1 owner=0 red": {ID: 1, Spec: &Spec{}},
		" 7 owner=3 rate=0.5 blue took=3ms rows=2 less=-1 think on=true name=x next=3,8 in_most=4 out_most=5": {
			ID: 7, Spec: &Spec{3, 0.5}, Colour: 1, Took: 3 * time.Millisecond, Rows: 2, Less: -1, Think: true, On: true,
			Name: "x", Next: []int{3, 8}, Limits: [2]limits{{4}, {5}}},
	} {
		if got := string(c.Append(nil, &v)); got != want {
			t.Errorf("written: %q\nwant     %q", got, want)
		}
		var again line
		if err := c.Read(&again, strings.Fields(want)); err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%q: read %+v, %v", want, again, err)
		}
	}
}

func TestErrors(t *testing.T) {
	c := Of[line]()
	for text, want := range map[string]string{
		"":               "the id is missing",
		"0":              `"0" is no id`,
		"1 green":        `"green" is not understood`,
		"1 think=true":   `"think=true" is not understood`,
		"1 owner=-1":     `owner="-1" must be a number in 0…4294967295`,
		"1 rows=0":       `rows="0" must be a number in 1…2147483647`,
		"1 took=-3s":     `took="-3s" must be a duration`,
		"1 rate=NaN":     `rate="NaN" must be a finite number`,
		"1 next=3,3":     `next="3" must be a number in 4…`,
		"1 on=perhaps":   "perhaps",
		"1 in_least=3":   `"in_least=3" is not understood`,
		"1 Plain=3":      `"Plain=3" is not understood`,
		"1 most=3":       `"most=3" is not understood`,
		"1 red in_most=": `in_most="" must be a number`,
	} {
		if err := c.Read(new(line), strings.Fields(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	c, dst := Of[line](), make([]byte, 0, 200)
	v := &line{ID: 7, Spec: &Spec{3, 0.5}, Took: time.Second, Next: []int{3}}
	if n := testing.AllocsPerRun(100, func() { dst = c.Append(dst[:0], v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 1500 * time.Microsecond: "1500us", time.Minute: "60s",
		7: "7ns", 63 * time.Millisecond: "63ms"} {
		if got := string(AppendDuration(nil, d)); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}
