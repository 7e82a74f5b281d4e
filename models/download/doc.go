// Package download runs downloads of models in processes: each name once, however many clients want it.
//
// A download is a process (process.go) that is confined to the models directory and the network, because it reads what
// servers of strangers send. It runs package models/pull, and tells how it goes in lines of JSON. [Manager] starts the
// processes, shares them among clients and cancels them; it touches no file itself but in Discard.
//
// Nothing half is left behind by a process that is killed: package models/pull gives a file its name when it is whole.
package download

import (
	"fmt"

	"github.com/uma-serve/uma-serve/models/pull"
)

// Job is a model to download, and how. It is the first line that a download's process reads.
type Job struct {
	Name     string   `json:"name"`     // as pull.Parse reads it
	Dir      string   `json:"dir"`      // the models directory
	Endpoint string   `json:"endpoint"` // the hub's; "" = its own
	Token    string   `json:"token"`    // the hub's; "" = none
	Hosts    []string `json:"hosts"`    // further hosts that downloads may be redirected to
	Memory   uint64   `json:"memory"`   // bytes that a model may take, for the choice of a quantisation; 0 = unknown
	Agent    string   `json:"agent"`    // User-Agent
	Sandbox  bool     `json:"sandbox"`  // the process confines itself
}

// Event is a line that a download's process writes. One of its fields is set.
type Event struct {
	Chosen   *Choice   `json:"chosen,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Note     string    `json:"note,omitempty"`
	Done     *Done     `json:"done,omitempty"` // the last line of a download that has ended well
	Failed   *Failure  `json:"failed,omitempty"`
}

// Choice is the model and the files that a name was resolved to.
type Choice struct {
	Name  string   `json:"name"`
	Files []string `json:"files"` // names in the source
	Sums  []string `json:"sums"`  // of each file: "sha256:…"
	Bytes int64    `json:"bytes"` // of all files
	Why   string   `json:"why,omitempty"`
}

// Progress is the state of one file.
type Progress struct {
	File  string `json:"file"`
	Done  int64  `json:"done"`  // bytes on the disk
	Total int64  `json:"total"` // bytes
}

// Done is a model that is here.
type Done struct {
	Name  string   `json:"name"`
	Files []string `json:"files"` // paths, in order; the first is the one to open
	Bytes int64    `json:"bytes"`
}

// Kind says what has ended a download.
type Kind string

// The kinds of failures.
const (
	KindName     Kind = "name" // it is no name of a model
	KindNotFound Kind = "not_found"
	KindAccess   Kind = "access"
	KindMemory   Kind = "memory"
	KindSpace    Kind = "space"
	KindNetwork  Kind = "network"
	KindOffline  Kind = "offline"
	KindCanceled Kind = "canceled"
	KindBusy     Kind = "busy" // too many downloads
	KindOther    Kind = "other"
)

var kinds = []struct {
	err  error
	kind Kind
}{
	{pull.ErrName, KindName}, {pull.ErrNotFound, KindNotFound}, {pull.ErrAccess, KindAccess},
	{pull.ErrMemory, KindMemory}, {pull.ErrSpace, KindSpace}, {pull.ErrNetwork, KindNetwork},
	{pull.ErrOffline, KindOffline}, {pull.ErrInterrupted, KindCanceled},
}

// Failure is the error of a download, in words that say what to do.
type Failure struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
}

func (f *Failure) Error() string { return f.Text }

func failure(kind Kind, format string, a ...any) *Failure {
	return &Failure{kind, fmt.Sprintf(format, a...)}
}
