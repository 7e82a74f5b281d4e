// Package documents puts text in the place of documents that a request names by a file's id, or sends as PDF, before a
// model's process reads the request.
//
// documents.go reads a document, process.go is the confined process in which a PDF is read, program.go starts it, and
// body.go finds documents in the bodies of the APIs.
package documents

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/pdf"
)

// Limits of documents.
const (
	MaxBytes  = 32 << 20 // of a document or an image
	MaxInBody = 64       // documents of a request that are named by id or are PDF
	maxKept   = 64 << 20 // bytes of text that is kept for the next request, of all users
)

// File is a file that a client has uploaded.
type File struct {
	Name string
	Data []byte
}

// Options are the parts of a Reader.
type Options struct {
	// File returns a file of a user, of MaxBytes at most; the error is an *api.Error where the client can do something
	// about it.
	File func(owner uint32, id string) (*File, error)
	// Read returns the text of a PDF file; the error is an *api.Error where the file is to blame. Program.Read does it
	// in a process.
	Read func(ctx context.Context, data []byte) (string, error)
}

// Reader reads documents. It is safe for concurrent use. Texts are kept for the user who sent the file, by its hash: a
// client sends its history again with every request. Another user's time to an answer must not tell who sent it before.
type Reader struct {
	Options

	mu    sync.Mutex
	texts map[sent]*kept
	order []sent // of the texts, oldest first
	bytes int
}

// sent is a file that a user has sent: its hash.
type sent struct {
	owner uint32
	hash  [sha256.Size]byte
}

// kept is the text of a PDF, or the reason why it has none.
type kept struct {
	text string
	err  *api.Error
}

// New returns a Reader.
func New(o Options) *Reader { return &Reader{Options: o, texts: map[sent]*kept{}} }

// text returns the text of a user's PDF.
func (d *Reader) text(ctx context.Context, owner uint32, data []byte) (string, error) {
	key := sent{owner, sha256.Sum256(data)}
	d.mu.Lock()
	k := d.texts[key]
	d.mu.Unlock()
	if k == nil {
		text, err := d.Read(ctx, data)
		k = &kept{text: text}
		if err != nil {
			e, ok := err.(*api.Error)
			if !ok || e.Code != wire.BadRequest { // another attempt may end otherwise
				return "", err
			}
			k.err = e
		}
		d.keep(key, k)
	}
	if k.err != nil {
		e := *k.err
		return "", &e
	}
	return k.text, nil
}

// overhead is the memory of a kept text beside the text, in bytes.
const overhead = 512

func (d *Reader) keep(key sent, k *kept) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.texts[key] != nil {
		return
	}
	d.texts[key], d.order = k, append(d.order, key)
	d.bytes += len(k.text) + overhead
	for d.bytes > maxKept {
		d.bytes -= len(d.texts[d.order[0]].text) + overhead
		delete(d.texts, d.order[0])
		d.order = d.order[1:]
	}
}

// content is a file in the form that a request takes: text or an image.
type content struct {
	name  string
	text  string // of a document
	image []byte // of an image
	mime  string // of an image
}

// want is the kind of file that a place in a body takes.
type want int

const (
	anything want = iota
	document
	image
)

// Text returns the text of a document that a user has uploaded. The error is an *api.Error where the client can do
// something about it.
func (d *Reader) Text(ctx context.Context, owner uint32, id string) (string, error) {
	c, err := d.file(ctx, owner, id, document)
	if err != nil {
		return "", err
	}
	return c.text, nil
}

// file reads a user's file for a place in a body. Its type follows from its bytes; the client's is ignored.
func (d *Reader) file(ctx context.Context, owner uint32, id string, w want) (*content, error) {
	f, err := d.File(owner, id)
	if err != nil {
		return nil, err
	}
	c := &content{name: f.Name}
	kind := http.DetectContentType(f.Data)
	switch {
	case pdf.Is(f.Data):
		if w == image {
			return nil, api.Refusef("file %.60q is a PDF, and an image is expected here: name it in a document", id)
		}
		c.text, err = d.text(ctx, owner, f.Data)
		return c, err
	case strings.HasPrefix(kind, "image/"):
		if w == document {
			return nil, api.Refusef("file %.60q is an image (%s), and a document is expected here: name it in an image",
				id, kind)
		}
		c.image, c.mime = f.Data, kind
		return c, nil
	case w != image && utf8.Valid(f.Data) && !strings.ContainsRune(string(f.Data), 0):
		c.text = strings.TrimPrefix(string(f.Data), "\ufeff")
		return c, nil
	}
	expected := "a document is PDF, or text in UTF-8"
	if w == image {
		expected = "an image is PNG, JPEG, WebP or GIF"
	}
	return nil, api.Refusef("file %.60q (%s) cannot be read: %s", id, kind, expected)
}
