package report

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// The answers of several models' engine processes become one. They come in the order of the models, that of the default
// one first.

// Reply is an engine process's answer to a question: a document, or an error.
type Reply struct {
	Model string
	Body  json.RawMessage
	Err   *wire.Error
}

// read returns the documents of a type among the replies, nil in the place of others, and the first error.
func read[T any](replies []Reply) (docs []*T, failed *wire.Error) {
	docs = make([]*T, len(replies))
	for i, p := range replies {
		of := new(T)
		if p.Err != nil || json.Unmarshal(p.Body, of) != nil {
			failed = cmp.Or(failed, p.Err)
			continue
		}
		docs[i] = of
	}
	return docs, failed
}

// MergeInfo returns the first process's report with what the front says of itself in own: its process, status and
// models, each of which gets its process's report.
func MergeInfo(own reports.Info, replies []Reply) reports.Info {
	in := own
	docs, _ := read[reports.Info](replies)
	byModel := map[string]*reports.Info{}
	for i, of := range docs {
		if of == nil {
			continue
		}
		byModel[replies[i].Model] = of
		if i == 0 {
			in = *of
			in.PID, in.Socket, in.Listeners, in.UptimeMs = own.PID, own.Socket, own.Listeners, own.UptimeMs
			in.Live.Sessions, in.Live.Descriptors, in.Live.Goroutines = own.Live.Sessions, own.Live.Descriptors,
				own.Live.Goroutines
		}
	}
	in.Status, in.Models = own.Status, own.Models
	for i := range in.Models {
		in.Models[i].Info = byModel[in.Models[i].Name]
	}
	return in
}

// MetricsDocument is a JSON document of metrics.
type MetricsDocument map[string]json.RawMessage

// MergeMetrics returns the first process's document with those members of own that are of connections, the documents
// of all processes by model, and those members of own that are the front's. unread hears of a process's document that
// is none.
func MergeMetrics(own MetricsDocument, replies []Reply, ofConnections, ofFront []string,
	unread func(model string)) MetricsDocument {
	doc := own
	models, front := map[string]json.RawMessage{}, MetricsDocument{}
	docs, _ := read[MetricsDocument](replies)
	for i, p := range replies {
		if p.Err != nil {
			continue
		}
		models[p.Model] = p.Body
		switch {
		case docs[i] == nil:
			unread(p.Model)
		case i == 0 && *docs[i] != nil:
			doc = *docs[i]
		}
	}
	doc = maps.Clone(doc)
	for _, key := range ofConnections {
		doc[key] = own[key]
	}
	for _, key := range ofFront {
		front[key] = own[key]
	}
	doc["front"], doc["models"] = document(front), document(models)
	return doc
}

// document is v as JSON.
func document(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("report: " + err.Error()) // of documents that were read
	}
	return b
}

// MergeWhy returns the newest of the requests of all processes, and of those that wait for a model: last, or as many
// as one question gets where last is 0.
func MergeWhy(replies []Reply, waiting []reports.WhyRequest, last int) reports.WhyReport {
	list := []reports.WhyRequest{}
	docs, _ := read[reports.WhyReport](replies)
	for i, of := range docs {
		if of != nil {
			for j := range of.Requests {
				of.Requests[j].Model = replies[i].Model
			}
			list = append(list, of.Requests...)
		}
	}
	list = append(list, waiting...)
	slices.SortStableFunc(list, func(a, b reports.WhyRequest) int { return cmp.Compare(a.AgeMs, b.AgeMs) })
	return reports.WhyReport{Requests: list[:min(len(list), cmp.Or(last, wire.MaxLast))]}
}

// MergeKV returns the first process's report with those of all processes by model.
func MergeKV(replies []Reply) (top reports.KVReport, failed *wire.Error) {
	docs, failed := read[reports.KVReport](replies)
	all := map[string]*reports.KVReport{}
	for i, of := range docs {
		if of == nil {
			continue
		}
		if len(all) == 0 {
			top = *of
		}
		all[replies[i].Model] = of
	}
	if len(all) == 0 {
		return top, cmp.Or(failed, noneLoaded())
	}
	top.Models = all
	return top, nil
}

// MergeKVDone returns the sum of an operation's results over all processes; an error when none of them has such an
// entry.
func MergeKVDone(q *wire.KVQuestion, replies []Reply) (sum reports.KVDone, failed *wire.Error) {
	sum = reports.KVDone{Op: q.Op.String(), Target: q.Target}
	docs, failed := read[reports.KVDone](replies)
	did := 0
	for i, of := range docs {
		if of == nil {
			continue
		}
		did++
		sum.Done, sum.Tokens, sum.Bytes = sum.Done+of.Done, sum.Tokens+of.Tokens, sum.Bytes+of.Bytes
		if sum.Text != "" {
			sum.Text += " "
		}
		sum.Text += replies[i].Model + ": " + of.Text
	}
	if did == 0 {
		return sum, cmp.Or(failed, noneLoaded())
	}
	return sum, nil
}

func noneLoaded() *wire.Error {
	return &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second, Message: "no model is loaded"}
}
