package daemon

import (
	"context"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// slowVocab is a vocabulary that says when it tokenizes a text that begins with "slow", and does so when it is told to.
type slowVocab struct {
	runtime.Vocab
	began, goOn chan struct{}
}

func (v *slowVocab) Tokenize(dst []runtime.Token, text string, special, markers bool) ([]runtime.Token, error) {
	if strings.HasPrefix(text, "slow") {
		v.began <- struct{}{}
		<-v.goOn
	}
	return v.Vocab.Tokenize(dst, text, special, markers)
}

// textPart is more than a turn of intake reads at once, in bytes.
const textPart = 32 << 10

// slowTexts is a request for the embeddings of n texts, each of which takes a turn of intake.
func slowTexts(n int) *wire.Embed {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = "slow " + strings.Repeat("x", textPart)
	}
	e := wireclient.EmbedTexts(texts...)
	e.Priority, e.Truncate = wire.PriorityBackground, true
	return e
}

// TestChatsPassTextsToEmbed: while intake tokenizes the texts of a request for embeddings, answers are prepared between
// two texts, and a cancel ends it there.
func TestChatsPassTextsToEmbed(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolMean, Scripts: []fake.Script{{Emit: "hello"}}}, "-c", "4096")
	m := *r.model.Load()
	v := &slowVocab{Vocab: m.Vocab, began: make(chan struct{}), goOn: make(chan struct{})}
	m.Vocab = v
	r.model.Store(&m)
	c := r.dial()
	for _, cancelled := range []bool{false, true} {
		st, err := c.StreamEmbeddings(context.Background(), slowTexts(3))
		if err != nil {
			t.Fatal(err)
		}
		waitfor.Recv(t, "the first text", v.began)
		chat := r.begin(r.dial(), func(q *wire.Request) {
			q.Messages = []wire.Message{{Role: "user", Content: "question"}}
		})
		waitfor.True(t, "the chat waits", func() bool { return len(r.room.Queued()) == 1 })
		v.goOn <- struct{}{}
		waitfor.Recv(t, "the second text", v.began)
		if a := collect(chat); a.err != nil || a.text != "hello" {
			t.Errorf("the chat, while the second text is read: %+v", a)
		}
		if cancelled {
			if err := c.Cancel(context.Background(), st.ID()); err != nil {
				t.Fatal(err)
			}
			waitfor.True(t, "the cancel", func() bool {
				for _, live := range r.ids() {
					if q := r.named(r.anyone(), live); len(q) == 1 && q[0].life.Cancelled() {
						return true
					}
				}
				return false
			})
		}
		v.goOn <- struct{}{}
		want := wire.Cancelled
		if !cancelled {
			want = wire.Stop
			waitfor.Recv(t, "the third text", v.began)
			v.goOn <- struct{}{}
		}
		if a := collect(st); a.err != nil || a.eos.Reason != want {
			t.Errorf("cancelled %v: %+v", cancelled, a)
		}
	}
	r.nothingLeft()
}

// TestLanes: intake takes answers before texts, texts before background requests, and a user's requests of one lane in
// their order.
func TestLanes(t *testing.T) {
	w := admission.NewWaitroom[job](100, 0)
	put := func(id string, uid uint32, embed, background bool) {
		j := job{r: newTestRequest(id, uid), w: &wire.Request{}}
		priority := wire.PriorityInteractive
		if background {
			priority = wire.PriorityBackground
		}
		if j.w.Priority = priority; embed {
			j.w, j.r.embed = nil, &embedding{w: &wire.Embed{Priority: priority}}
		}
		w.Enter(uid)
		if e := w.Put(uid, j); e != nil {
			t.Fatalf("%+v", e)
		}
	}
	for _, user := range []struct {
		uid  uint32
		name string
	}{{1, "a"}, {2, "b"}} {
		put(user.name+" background embed", user.uid, true, true)
		put(user.name+" background chat", user.uid, false, true)
		put(user.name+" embed", user.uid, true, false)
		put(user.name+" chat", user.uid, false, false)
		put(user.name+" chat 2", user.uid, false, false)
	}
	if j, ok := w.Before(admission.LaneAnswers); ok {
		t.Errorf("%s goes before answers", j.r.wireID)
	}
	var got []string
	for j, ok := w.Before(admission.LaneTexts); ok; j, ok = w.Before(admission.LaneTexts) {
		got = append(got, j.r.wireID)
	}
	got = append(got, "–")
	for j, ok, _ := w.Next(); ok; j, ok, _ = w.Next() {
		got = append(got, j.r.wireID)
	}
	const want = "a chat, b chat, a chat 2, b chat 2, –, a embed, b embed, a background embed, b background embed, " +
		"a background chat, b background chat"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s; want %s", s, want)
	}
}
