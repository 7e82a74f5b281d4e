package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// job is the pull of one file.
type job struct {
	*Puller
	remote
	src    source
	plan   *plan
	number int
	folder string // the model's
	path   string // the file's
}

func (j *job) report(done int64, shared bool) {
	j.cfg.Observer.Progress(Progress{File: j.remote.path, Number: j.number, Of: len(j.plan.files), Done: done,
		Total:  j.size,
		Shared: shared})
}

// run pulls the file, or waits until another process has.
func (j *job) run(ctx context.Context) (err error) {
	if dir := filepath.Dir(j.path); dir != j.folder { // a folder of the repository
		rel, err := filepath.Rel(j.folder, dir)
		if err == nil {
			_, err = makeFolder(j.folder, filepath.ToSlash(rel))
		}
		if err != nil {
			return err
		}
	}
	told := false
	lock, err := lockFile(ctx, j.path+".lock", func() {
		if !told {
			told = true
			j.cfg.Observer.Note(fmt.Sprintf("another process pulls %s; waiting for it", filepath.Base(j.path)))
		}
		if s, err := readState(j.path+".state", state{Sum: j.sum.String(), Size: j.size}); err == nil {
			j.report(s.Spans.total(), true)
		}
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fileError(err)
	}
	defer func() {
		_, kept := os.Stat(j.path + ".part")
		lock.release(kept != nil)
	}()
	switch here, err := j.present(ctx); {
	case err != nil:
		return err
	case here:
		j.discard() // what an older pull has left
		return nil
	}
	return j.download(ctx)
}

// present reports whether the file is here, whole. A file without a Record is hashed.
func (j *job) present(ctx context.Context) (bool, error) {
	st, err := os.Stat(j.path)
	if err != nil || !st.Mode().IsRegular() || st.Size() != j.size {
		return false, nil
	}
	if r, err := ReadRecord(j.path); err == nil && r.Bytes == j.size {
		if r.Sum == j.sum.String() {
			j.report(j.size, false)
			return true, nil
		}
		return false, nil // an older revision
	}
	f, err := os.Open(j.path)
	if err != nil {
		return false, fileError(err)
	}
	defer f.Close()
	j.cfg.Observer.Note(filepath.Base(j.path) + " is here; comparing it with its listing")
	h := j.sum.new(j.size)
	if _, err := io.Copy(h, &contextReader{ctx, f}); err != nil {
		return false, err
	}
	if fmt.Sprintf("%x", h.Sum(nil)) != j.sum.hex {
		return false, nil
	}
	j.report(j.size, false)
	return true, j.writeRecord()
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r *contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// download downloads the file, checks it and gives it its name. What cannot become the file is removed; what can is
// kept.
func (j *job) download(ctx context.Context) error {
	part, err := os.OpenFile(j.path+".part", os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return fileError(err)
	}
	defer part.Close()
	st, err := part.Stat()
	if err != nil {
		return fileError(err)
	}
	t := &transfer{web: j.src.rules(), login: j.src.login(), file: j.remote, part: part, state: j.path + ".state",
		largest: j.cfg.segment, sync: j.cfg.sync, writeAt: j.cfg.writeAt,
		report: func(done int64) { j.report(done, false) }}
	if st.Size() != j.size {
		removeState(t.state) // it is one of another file
	}
	if here := t.resume(); here > 0 {
		j.cfg.Observer.Note(fmt.Sprintf("%s: %s of %s are here already", filepath.Base(j.path), ui.Bytes(uint64(here)),
			ui.Bytes(uint64(j.size))))
	}
	if err := reserve(part, j.size); err != nil {
		return &Error{Kind: ErrSpace, What: fmt.Sprintf("%s for %s cannot be reserved on the disk",
			ui.Bytes(uint64(j.size)), j.path), Err: err,
			Do: "free some space, or name a folder on another disk with --models-dir"}
	}
	err = t.run(ctx, j.cfg.Connections)
	if errors.Is(err, errHash) || errors.Is(err, errChanged) || errors.Is(err, errNoGGUF) {
		j.cfg.Observer.Note(fmt.Sprintf("%s: %v; downloading it again, over one connection", filepath.Base(j.path),
			err))
		t.restart()
		err = t.run(ctx, 1)
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return &Error{Kind: ErrInterrupted, What: fmt.Sprintf("interrupted: %s of %s of %s are kept",
			ui.Bytes(uint64(t.total())),
			ui.Bytes(uint64(j.size)), filepath.Base(j.path)), Do: "the same command goes on from there"}
	case errors.Is(err, errHash), errors.Is(err, errChanged), errors.Is(err, errNoGGUF):
		j.discard()
		return &Error{Kind: ErrCorrupt, What: j.remote.path + " is not usable", Err: err,
			Do: "nothing of it is kept; pull again later, or from another source: " +
				"the server, or a proxy in between, changes the file"}
	case err != nil:
		if t.total() == 0 {
			j.discard() // the disk's space for nothing
		}
		return err
	}
	if err := gguf.Verify(part, j.size); err != nil {
		j.discard()
		return &Error{Kind: ErrCorrupt, What: j.remote.path +
			" is as its owner published it, and no model that can be served", Err: err,
			Do: "nothing of it is kept; pull another file or repository"}
	}
	return j.finish(part)
}

// discard removes what cannot become the file.
func (j *job) discard() {
	os.Remove(j.path + ".part")
	removeState(j.path + ".state")
}

// finish gives a whole file its name. After a crash in between, the next pull finds the file or the whole part.
func (j *job) finish(part *os.File) error {
	info, err := os.Stat(j.folder)
	if err == nil {
		err = share(part, info)
	}
	if err == nil {
		err = j.cfg.sync(part)
	}
	if err == nil {
		err = j.writeRecord()
	}
	if err == nil {
		err = os.Rename(part.Name(), j.path)
	}
	if err != nil {
		return fileError(err)
	}
	removeState(j.path + ".state")
	if dir, err := os.Open(filepath.Dir(j.path)); err == nil {
		_ = j.cfg.sync(dir) // not every file system can; the name is there without it
		dir.Close()
	}
	return nil
}
