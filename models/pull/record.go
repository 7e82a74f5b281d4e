package pull

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/uma-serve/uma-serve/models/store"
)

// Record is FILE.gguf.json beside each pulled file: where it comes from.
type Record struct {
	Name         string          `json:"name"`         // as Parse reads it
	Source       string          `json:"source"`       // page or address, for people
	Revision     string          `json:"revision"`     // commit of the repository; digest of the manifest
	File         string          `json:"file"`         // path in the repository
	Sum          string          `json:"sum"`          // "sha256:…"
	Bytes        int64           `json:"bytes"`        // of the file
	Quantisation string          `json:"quantisation"` // by the file's name; "" = unknown
	Pulled       time.Time       `json:"pulled"`
	Template     string          `json:"template,omitempty"`   // of ollama: Go template of the prompt
	System       string          `json:"system,omitempty"`     // of ollama: system prompt
	Parameters   json.RawMessage `json:"parameters,omitempty"` // of ollama: default options
	Licence      string          `json:"licence,omitempty"`    // of ollama: text
}

// maxRecordBytes bounds a Record: a licence and a template are texts of some 100 kB at most.
const maxRecordBytes = 4 << 20

// RecordPath returns the path of the Record of a file.
func RecordPath(file string) string { return file + ".json" }

// ReadRecord reads the Record of a file. The error is the file system's or of JSON.
func ReadRecord(file string) (Record, error) {
	f, err := os.Open(RecordPath(file))
	if err != nil {
		return Record{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecordBytes+1))
	if err != nil {
		return Record{}, err
	}
	if len(b) > maxRecordBytes {
		return Record{}, fmt.Errorf("%s: longer than %d bytes", f.Name(), maxRecordBytes)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return r, nil
}

func (j *job) writeRecord() error {
	r := j.plan.record
	if store.IsProjector(j.remote.path) { // the texts are the model's
		r = Record{Name: r.Name, Source: r.Source, Revision: r.Revision, Quantisation: store.QuantOf(j.remote.path)}
	}
	r.File, r.Sum, r.Bytes, r.Pulled = j.remote.path, j.sum.String(), j.size, time.Now().UTC().Truncate(time.Second)
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	info, err := os.Stat(j.folder)
	if err != nil {
		return fileError(err)
	}
	if err := writeFile(RecordPath(j.path), append(b, '\n'), j.cfg.sync,
		func(f *os.File) error { return share(f, info) }); err != nil {
		return fileError(err)
	}
	return nil
}
