package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fastjson"
)

// Image is a picture or a sound in a message, as the client sent it: a data: URL, base64, or a file that came with the
// frame. Package prepare reads it.
type Image struct {
	Kind string // the type of the part or the name of the field: "image_url", "images", a kind of sound
	Data string
	File []byte // what was read of the file that Data names, which came with the frame; nil: Data is all
}

// fileScheme begins Data that names a file which came with the frame, by its number.
const fileScheme = "fd:"

// Descriptor returns the number of the file that Data names, among those that came with the frame.
func (im *Image) Descriptor() (k int, ok bool) {
	digits, found := strings.CutPrefix(im.Data, fileScheme)
	k, err := strconv.Atoi(digits)
	return k, found && err == nil && k >= 0
}

// ByDescriptor returns the images and sounds of r that are in files which came with the frame, and the files' numbers.
func (r *Request) ByDescriptor() (images []*Image, numbers []int) {
	for i := range r.Messages {
		for j := range r.Messages[i].Images {
			im := &r.Messages[i].Images[j]
			if k, ok := im.Descriptor(); ok {
				images, numbers = append(images, im), append(numbers, k)
			}
		}
	}
	return images, numbers
}

// Kinds of sounds: a part of OpenAI's, one of vLLM's, and Gemini's data of a type "audio/…".
const (
	KindSound    = "input_audio"
	KindSoundURL = "audio_url"
	KindAudio    = "audio"
)

// Sound reports whether im is a sound.
func (im *Image) Sound() bool {
	return im.Kind == KindSound || im.Kind == KindSoundURL || im.Kind == KindAudio
}

// Noun is "image" or "sound".
func (im *Image) Noun() string {
	if im.Sound() {
		return "sound"
	}
	return "image"
}

// MaxImages is the most images and sounds of a message.
const MaxImages = 64

// ImageMark is in a message's Content where the next of its Images is. It is random (SeedImages): no client can
// write it.
var ImageMark = "\uf8fcimage\uf8fe"

// imageOpen and imageShut enclose an image in a text that an API passes on to this package (ImagePart).
var imageOpen = "\uf8fcimage:"

const imageShut = "\uf8fe"

// SeedImages makes the marks of images unforgeable: no client knows secret, which is random. Call it before requests
// are parsed.
func SeedImages(secret string) {
	ImageMark, imageOpen = "\uf8fc"+secret+imageShut, "\uf8fc"+secret+":"
}

// ImagePart returns the text that stands for an image in a message's content, where an API translates its messages into
// those of this package. kind is the client's word for the part.
func ImagePart(kind, data string) string {
	kind = short(strings.ReplaceAll(kind, ",", ""))
	return imageOpen + kind + "," + strings.ReplaceAll(data, imageShut, "") + imageShut
}

// imageOf returns the data of a part that is an image or a sound: OpenAI's image_url, input_image and input_audio,
// vLLM's audio_url, Anthropic's source.
func imageOf(kind string, part *fastjson.Value) (data string, ok bool) {
	paths := [][]string{{"image_url", "url"}, {"image_url"}, {"url"}, {"image"}, {"data"}}
	switch kind {
	case "image_url", "input_image", "image":
	case KindSound, KindSoundURL:
		paths = [][]string{{"input_audio", "data"}, {"audio_url", "url"}, {"audio_url"}}
	default:
		return "", false
	}
	for _, path := range paths {
		if s := part.GetStringBytes(path...); len(s) > 0 {
			return string(s), true
		}
	}
	return SourceImage(string(part.GetStringBytes("source", "type")), string(part.GetStringBytes("source", "data")),
		string(part.GetStringBytes("source", "url")))
}

// SourceImage returns the data of Anthropic's source of an image.
func SourceImage(kind, data, url string) (string, bool) {
	switch {
	case kind == "base64" && data != "":
		return data, true
	case kind == "url" && url != "":
		return url, true
	}
	return "", false
}

// imageList reads a message's field "images": base64 texts, whose pictures come before the content.
func imageList(name string, v *fastjson.Value) (text string, err error) {
	list, err := v.Array()
	if err != nil {
		return "", wrongType(name, v, "an array of base64 texts")
	}
	for i, e := range list {
		data, err := e.StringBytes()
		if err != nil {
			return "", wrongType(entry(name, i), e, "a base64 text")
		}
		text += ImagePart("images", string(data))
	}
	return text, nil
}

// takeImages moves the images in m's content to m.Images and leaves ImageMark in their places. The line break that
// joins an image and a text beside it goes with it. moved tells where a place in the old content is in the new one.
func (m *Message) takeImages() (moved func(int) int, err error) {
	same := func(at int) int { return at }
	if !strings.Contains(m.Content, imageOpen) {
		return same, nil
	}
	type cut struct{ at, less int }
	var cuts []cut
	var b strings.Builder
	rest, done := m.Content, 0
	for {
		before, after, found := strings.Cut(rest, imageOpen)
		if !found {
			b.WriteString(rest)
			break
		}
		body, behind, _ := strings.Cut(after, imageShut)
		kind, data, _ := strings.Cut(body, ",")
		from := done + len(before)
		to := from + len(imageOpen) + len(body) + len(imageShut)
		before = strings.TrimSuffix(before, "\n")
		if strings.HasPrefix(behind, "\n") {
			behind, to = behind[1:], to+1
		}
		b.WriteString(before)
		b.WriteString(ImageMark)
		m.Images = append(m.Images, Image{Kind: kind, Data: data})
		if isFile(data) {
			im := &m.Images[len(m.Images)-1]
			return same, fmt.Errorf("%s %d (%s) is named by a file: URL, and this server opens no files for its "+
				"clients; send its data as base64, or the open file with the frame (fd:0, "+
				"docs/protocol.md)", im.Noun(), len(m.Images), kind)
		}
		done, rest = to, behind
		cuts = append(cuts, cut{to, to - b.Len()})
	}
	m.Content = b.String()
	if len(m.Images) > MaxImages {
		return same, fmt.Errorf("%d images and sounds in a message, and the limit is %d", len(m.Images), MaxImages)
	}
	return func(at int) int {
		less := 0
		for _, c := range cuts {
			if at >= c.at {
				less = c.less
			}
		}
		return at - less
	}, nil
}

// isFile reports whether the data of an image is a URL of a file on the server's machine.
func isFile(data string) bool {
	const scheme = "file:"
	return len(data) >= len(scheme) && strings.EqualFold(data[:len(scheme)], scheme)
}

// LeaveOut replaces m's images and sounds by texts that say so: those that reads, which is told whether it is a sound,
// does not take.
func (m *Message) LeaveOut(reads func(sound bool) bool, notes *Notes) {
	var kept []Image
	var b strings.Builder
	rest := m.Content
	for i := range m.Images {
		im := &m.Images[i]
		before, after, _ := strings.Cut(rest, ImageMark)
		b.WriteString(before)
		if rest = after; reads(im.Sound()) {
			b.WriteString(ImageMark)
			kept = append(kept, *im)
			continue
		}
		text, note := LeftOut(im.Kind)
		notes.Add(note)
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if b.WriteString(text); rest != "" {
			rest = "\n" + rest
		}
	}
	b.WriteString(rest)
	m.Content, m.Images = b.String(), kept
}

// Unheard reports whether the newest message of a user has a sound: a model that hears none cannot answer it, while it
// can read on where an older one had one.
func Unheard(messages []Message) (message int, found bool) {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == "user" {
			return i, slices.ContainsFunc(messages[i].Images, func(im Image) bool { return im.Sound() })
		}
	}
	return 0, false
}
