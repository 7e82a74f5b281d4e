package daemon

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// Embeddings of images in the disk tier.

func seeing() fake.Config {
	return fake.Config{Images: &fake.Images{Rows: rowsOfImage, SampleRate: 16000}, EndEvery: 50}
}

// viewFiles are the files of embeddings in a snapshot directory, by namespace.
func viewFiles(t *testing.T, dir string) (names map[format.Namespace][]string) {
	t.Helper()
	names = map[format.Namespace][]string{}
	for _, name := range snapshotFiles(t, dir) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if h, _, err := format.Open(b); err == nil && h.KVTypeK == "view 1" {
			names[h.Namespace] = append(names[h.Namespace], name)
		}
	}
	return names
}

// told asks about an image on behalf of a user, in a prompt that begins differently with every system text.
func (r *running) told(uid uint32, system string, shade uint8, salt string) string {
	r.t.Helper()
	c := r.as(uid)
	c.send(system, func(q *wire.Request) {
		aboutImage(shade, r.t)(q)
		q.MaxTokens, q.CacheSalt = 12, salt
		q.Messages = append([]wire.Message{{Role: "system", Content: system}}, q.Messages...)
	})
	ev := c.end(system)
	if ev.Kind != wire.EventEOS {
		r.t.Fatal(ev.Error)
	}
	return string(ev.EOS.Text)
}

func (r *running) encodings() [3]float64 {
	return [3]float64{r.counter("images_encoded_total"), r.counter("image_cache_hits_total.host"),
		r.counter("image_cache_hits_total.disk")}
}

// TestImagesOutliveTheDaemon: after a restart an image is not encoded again for the user who sent it, in a prompt of
// which nothing is cached, and the answer is that of a daemon that encodes it.
func TestImagesOutliveTheDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	args := []string{"--cache-dir", dir, "--cache-ram", "64MiB"}
	r := serve(t, seeing())
	want := r.told(7, "second", 5, "")
	if got := r.encodings(); got != [3]float64{1, 0, 0} {
		t.Errorf("without a disk: %v", got)
	}
	r.stop()
	r = serve(t, seeing(), args...)
	r.told(7, "first", 5, "")
	r.told(7, "first", 5, "of a tenant")
	sound := soundBodies(base64.StdEncoding.EncodeToString(ggufgen.Chirp(1)))["/v1/chat/completions"][0]
	post(t, r.web(), "/v1/chat/completions", sound)
	r.nothingLeft()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	files := viewFiles(t, dir)
	if len(files) != 3 || len(files[7]) != 1 || len(files[format.Namespace(os.Getuid())]) != 1 {
		t.Errorf("%v", files)
	}

	r = serve(t, seeing(), args...)
	if got := r.told(7, "second", 5, ""); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.told(7, "third", 5, "")
	if got := r.encodings(); got != [3]float64{0, 1, 1} {
		t.Errorf("after a restart: encoded, in memory, on disk: %v", got)
	}
	r.told(7, "third", 5, "of a tenant")
	post(t, r.web(), "/v1/chat/completions", sound)
	if got := r.encodings(); got != [3]float64{0, 1, 3} || r.counter("sounds_encoded_total") != 0 {
		t.Errorf("of a tenant, and a sound: %v", got)
	}
	for i, other := range []func() string{
		func() string { return r.told(8, "second", 5, "") },
		func() string { return r.told(8, "second", 5, "of a tenant") },
		func() string { return r.told(7, "second", 5, "of another") },
		func() string { return r.told(7, "second", 6, "") },
	} {
		if other(); r.encodings() != [3]float64{float64(i + 1), 1, 3} {
			t.Errorf("another owner or image, %d: %v", i, r.encodings())
		}
	}
	r.nothingLeft()
}

// TestImagesAreNotKeptOnDisk where nothing is.
func TestImagesAreNotKeptOnDisk(t *testing.T) {
	for _, option := range [][]string{{"--no-prefix-cache"}, {"--cache-ram", "0"}} {
		dir := filepath.Join(t.TempDir(), "kv")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r := serve(t, seeing(), append([]string{"--cache-dir", dir}, option...)...)
			r.told(7, "first", 5, "")
			r.told(7, "second", 5, "")
			if got := r.encodings(); got != [3]float64{1, 1, 0} {
				t.Errorf("%s: %v", option[0], got)
			}
			if _, err := r.dial().KVDo(context.Background(), wire.KVDrop, "all"); err != nil {
				t.Error(err)
			}
			if r.told(7, "third", 5, ""); r.encodings() != [3]float64{2, 1, 0} {
				t.Errorf("%s: dropped: %v", option[0], r.encodings())
			}
			r.nothingLeft()
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
		if files := snapshotFiles(t, dir); len(files) > 0 {
			t.Errorf("%s: %v", option[0], files)
		}
	}
}

// TestImagesOfAnotherProjector: what another projector, or another size of steps, has made is not used, and neither is
// a file that is damaged, cut, or another image's.
func TestImagesOfAnotherProjector(t *testing.T) {
	together := func(projector string) fake.Config {
		return fake.Config{EndEvery: 50, Images: &fake.Images{Rows: rowsOfImage, Together: true, Projector: projector}}
	}
	dir := filepath.Join(t.TempDir(), "kv")
	args := []string{"--cache-dir", dir, "--cache-ram", "64MiB"}
	alone := serve(t, together(""))
	want := alone.told(7, "second", 5, "")
	first := serve(t, together(""), args...)
	first.told(7, "first", 5, "")
	first.told(7, "first", 6, "")
	first.stop()
	whole := viewFiles(t, dir)[7]
	if len(whole) != 2 {
		t.Fatal(whole)
	}
	a, b := read(t, whole[0]), read(t, whole[1])
	for _, c := range []struct {
		what        string
		hurt        func()
		cfg         fake.Config
		more        []string
		quarantined float64
		hit         bool
	}{
		{"as it was", func() {}, together(""), nil, 0, true},
		{"another projector", func() {}, together("2"), nil, 0, false},
		{"smaller steps", func() {}, together(""), []string{"--ubatch-size", "23"}, 0, false},
		{"a byte", func() {
			write(t, whole[0], edited(a, func(b []byte) { b[len(b)-60] ^= 1 }))
			write(t, whole[1], edited(b, func(b []byte) { b[len(b)-60] ^= 1 }))
		}, together(""), nil, 1, false},
		{"cut", func() { write(t, whole[0], a[:len(a)-50]); write(t, whole[1], b[:len(b)-50]) }, together(""), nil, 2,
			false},
		{"swapped", func() { write(t, whole[0], b); write(t, whole[1], a) }, together(""), nil, 2, false},
		{"no view", func() { write(t, whole[0], noView(t, a)); write(t, whole[1], noView(t, b)) }, together(""), nil, 1,
			false},
	} {
		write(t, whole[0], a)
		write(t, whole[1], b)
		c.hurt()
		r := serve(t, c.cfg, append(slices.Clone(args), c.more...)...)
		hits := [3]float64{1, 0, 0}
		if c.hit {
			hits = [3]float64{0, 0, 1}
		}
		if got := r.told(7, "second", 5, ""); got != want || r.encodings() != hits {
			t.Errorf("%s: %q, want %q; %v, want %v", c.what, got, want, r.encodings(), hits)
		}
		eventually(t, c.what+": damaged files are put aside", func() bool {
			return r.counter("kv_quarantined_total") == c.quarantined
		})
		r.nothingLeft()
		r.stop()
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func edited(b []byte, edit func([]byte)) []byte {
	b = slices.Clone(b)
	edit(b)
	return b
}

// noView is a file with valid checksums whose payload is no view.
func noView(t *testing.T, b []byte) []byte {
	t.Helper()
	h, _, err := format.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	payload := []byte(strings.Repeat("no view", 100))
	h.Flags, h.Raw, h.Stored = 0, int64(len(payload)), int64(len(payload))
	out, err := format.Append(nil, &h, payload)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDropImages: kv lists embeddings on disk, and drops one or all, from memory too.
func TestDropImages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	r := serve(t, seeing(), "--cache-dir", dir, "--cache-ram", "64MiB")
	me := uint32(os.Getuid())
	asked := r.dial()
	images := func() (out []reports.KVEntry) {
		t.Helper()
		rep, err := asked.KV(context.Background(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range rep.Entries {
			if e.Kind == "image" {
				out = append(out, e)
			}
		}
		return out
	}
	onDisk := func() (n int) {
		for _, e := range images() {
			if e.Tier == wire.TierDisk {
				n++
			}
		}
		return n
	}
	for i, ask := range []func(){
		func() { r.told(me, "first", 5, "") }, func() { r.told(me, "first", 6, "") },
		func() { r.told(7, "first", 5, "") },
	} {
		ask() // one at a time: a view is not kept where many others wait to be written
		eventually(t, "it is on disk", func() bool { return onDisk() == i+1 })
	}
	if n := r.counter("kv_tier_entries.disk"); n < 3 {
		t.Errorf("the disk has %v entries", n)
	}
	for _, e := range images() {
		if e.Tokens != 0 || e.Bytes < 4*2*rowsOfImage || !strings.Contains(e.Why, "image") {
			t.Errorf("%+v", e)
		}
	}
	one := images()[slices.IndexFunc(images(), func(e reports.KVEntry) bool { return e.UID == 7 })]
	for _, op := range []wire.KVOp{wire.KVPin, wire.KVUnpin, wire.KVSave, wire.KVDrop} {
		done, err := r.dial().KVDo(context.Background(), op, one.Name)
		if err != nil || done.Done != 1 || done.Tokens != 0 || !strings.Contains(done.Text, "image") {
			t.Errorf("%v: %+v, %v", op, done, err)
		}
	}
	before := r.encodings()
	r.told(me, "second", 5, "")
	r.told(7, "second", 5, "")
	if got := r.encodings(); got[0] != before[0]+1 || got[1] != before[1]+1 || got[2] != before[2] {
		t.Errorf("one is dropped: %v, before %v", got, before)
	}
	if _, err := r.dial().KVDo(context.Background(), wire.KVDrop, "all"); err != nil {
		t.Fatal(err)
	}
	if files := viewFiles(t, dir); len(files) != 0 || len(images()) != 0 {
		t.Errorf("left: %v %v", files, images())
	}
	before = r.encodings()
	if r.told(me, "third", 5, ""); r.encodings()[0] != before[0]+1 {
		t.Errorf("all are dropped: %v, before %v", r.encodings(), before)
	}
	r.nothingLeft()
}

// TestImagesObeyTheCapOfTheDisk: they are evicted as snapshots are.
func TestImagesObeyTheCapOfTheDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	r := serve(t, seeing(), "--cache-dir", dir, "--cache-ram", "64MiB", "--cache-disk", "20KiB")
	for i := range 40 {
		r.told(7, "first", uint8(5*i), "")
	}
	r.nothingLeft()
	r.stop()
	size := int64(0)
	for _, name := range snapshotFiles(t, dir) {
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if n := len(viewFiles(t, dir)[7]); size > 20<<10 || n == 0 || n == 40 {
		t.Errorf("%d bytes, %d of 40 images", size, n)
	}
}
