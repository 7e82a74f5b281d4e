package prepare

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/picture"
	"github.com/uma-serve/uma-serve/model/sound"
	"github.com/uma-serve/uma-serve/runtime"
)

// Images and sounds of a conversation. Each is in its message as wire.ImageMark. For the template it becomes a
// placeholder, which carries its number; when the rendered text is tokenized, the tokens of its view take the
// placeholder's place, as libmtmd puts them where llama-server has its media marker.

func init() { wire.SeedImages(rand.Text()) }

// Images returns the facts about the projector; nil without one.
func (m *Model) Images() *runtime.Images {
	if m.viewer == nil {
		return nil
	}
	return m.viewer.Images()
}

// hasImages reports whether a conversation has images or sounds.
func hasImages(w *wire.Request) bool {
	for i := range w.Messages {
		if len(w.Messages[i].Images) > 0 {
			return true
		}
	}
	return false
}

// LookAt reports whether View is due before w is prepared. Images and sounds for a model that reads none are replaced
// by texts that say so: a client sends its history again with every request, also to another model. A sound in the
// newest message of the user stays, and View refuses it.
func (m *Model) LookAt(w *wire.Request) bool {
	if !hasImages(w) {
		return false
	}
	facts := m.Images()
	newest, unheard := wire.Unheard(w.Messages)
	for i := range w.Messages {
		w.Messages[i].LeaveOut(func(sound bool) bool {
			return facts.Reads(sound) || sound && unheard && i == newest
		}, &w.Notes)
	}
	return hasImages(w)
}

// Turn says when pictures and sounds may be decoded and encoded, each in a turn.
type Turn struct {
	Take func() bool // waits for one; false: they are not needed any more
	Give func()      // ends one
	GoOn func() bool // is asked between two segments of a picture or a sound
}

// View decodes and encodes the images and sounds of owner's request w, in order. It takes seconds for those that were
// not encoded lately. No views and no error: they are not needed any more.
func (m *Model) View(owner uint32, w *wire.Request, t Turn) ([]*runtime.View, *wire.Error) {
	ns := uint64(owner)
	if salt := saltOf(owner, w.CacheSalt, nil); salt != 0 {
		ns = salt
	}
	var views []*runtime.View
	rows := 0
	if i, unheard := wire.Unheard(w.Messages); unheard && !m.Images().Hear() {
		return nil, wire.Errorf(wire.BadRequest, "messages[%d]: this model hears nothing: it has no projector of "+
			"sounds (docs/models.md); ask one that does, or send text", i)
	}
	for i := range w.Messages {
		for k := range w.Messages[i].Images {
			im := &w.Messages[i].Images[k]
			where := fmt.Sprintf("messages[%d]: %s %d (%s)", i, im.Noun(), k+1, im.Kind)
			if !t.Take() {
				return nil, nil
			}
			v, err := m.view(im, ns, t.GoOn)
			t.Give()
			switch {
			case errors.Is(err, runtime.ErrAborted):
				return nil, nil
			case err != nil:
				return nil, wire.Errorf(wire.BadRequest, "%s: %v", where, err)
			}
			// Thousands of small pictures would be encoded for minutes before their prompt turns out too long.
			if rows += len(v.Tokens); rows > m.Longest() {
				return nil, &wire.Error{Code: wire.ContextLength, NPrompt: rows, NCtx: m.Longest(),
					Message: fmt.Sprintf("context_length_exceeded: %s: the images and sounds up to it take %d tokens, "+
						"and the context has %d: send fewer or smaller ones", where, rows, m.Longest())}
			}
			views = append(views, v)
		}
	}
	return views, nil
}

func (m *Model) view(im *wire.Image, ns uint64, goOn func() bool) (*runtime.View, error) {
	medium := &runtime.Medium{}
	data, fromText := im.File, picture.FromText
	if im.Sound() {
		fromText = sound.FromText
	}
	if data == nil {
		var err error
		if data, err = fromText(im.Data); err != nil {
			return nil, err
		}
	}
	if im.Sound() {
		medium.Hash = sound.Hash(data)
		medium.Sound = func(rate int) (*runtime.Sound, error) { return sound.Decode(data, rate) }
	} else {
		medium.Hash = sha256.Sum256(data)
		medium.Picture = func() (*runtime.Picture, error) { return picture.Decode(data) }
	}
	return m.viewer.View(medium, ns, goOn)
}

// placeImages replaces the marks of the n images and sounds that msg has by placeholders, which count on from first.
func (m *markers) placeImages(content string, first, n int) string {
	for k := range n {
		content = strings.Replace(content, wire.ImageMark, m.image+strconv.Itoa(first+k)+shut, 1)
	}
	return content
}

// cutImage returns the text before the first placeholder of an image, the image's number, and the text behind it.
func (m *markers) cutImage(text string) (before string, number int, after string, found bool) {
	before, rest, found := strings.Cut(text, m.image)
	if !found {
		return text, 0, "", false
	}
	digits, after, _ := strings.Cut(rest, shut)
	number, err := strconv.Atoi(digits)
	if err != nil {
		return text, 0, "", false
	}
	return before, number, after, true
}

// tokenizeViews is tokenize for a rendered conversation with images.
func (m *Model) tokenizeViews(owner uint32, text string, views []*runtime.View) (
	tokens []runtime.Token, segments []runtime.ViewSegment, err error) {
	first := true
	for {
		before, k, after, found := m.markers.cutImage(text)
		if found && k >= len(views) {
			return nil, nil, fmt.Errorf("image %d of %d: the chat template repeats images", k+1, len(views))
		}
		if tokens, err = m.tokenizeMore(tokens, owner, before, first && !m.hasBOS(before)); err != nil || !found {
			return tokens, segments, err
		}
		for _, p := range views[k].Segments {
			p.At += len(tokens)
			segments = append(segments, p)
		}
		tokens = append(tokens, views[k].Tokens...)
		text, first = after, false
	}
}

// imageText stands for an image in the text of a rendered conversation that a client asks for.
const imageText = "<__media__>"

// showImages replaces the placeholders of images in a rendered conversation.
func (m *markers) showImages(text string) string {
	var b strings.Builder
	for {
		before, _, after, found := m.cutImage(text)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(imageText)
		text = after
	}
}

// setImages passes the images of the prompt on to the core.
func (m *Model) setImages(out *Prepared, p *prompt) *wire.Error {
	if len(p.segments) == 0 {
		return nil
	}
	if out.PromptRows {
		return &wire.Error{Code: wire.BadRequest, Message: "prompt_logprobs: the prompt has images or sounds, whose " +
			"rows have no tokens: leave out prompt_logprobs"}
	}
	out.Segments = p.segments
	for _, segment := range p.segments {
		if segment.Together {
			out.Blocks = append(out.Blocks, segment.At, segment.At+segment.N)
		}
	}
	return nil
}
