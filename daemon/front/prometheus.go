package front

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"

	dto "github.com/prometheus/client_model/go"

	"github.com/uma-serve/uma-serve/daemon/scrapes"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/models/download"
)

// writePrometheus writes the front's own metrics, those about its models, and the engine processes' with the label
// model.
func (f *Front) writePrometheus(w io.Writer, r *http.Request) error {
	families := scrapes.Families{}
	if err := families.Add(bytes.NewReader(f.scrape()), ""); err != nil {
		return fmt.Errorf("the front's own metrics: %w", err)
	}
	answers := f.overHTTP(scrape(r), nil)
	for _, a := range answers {
		if err := families.Add(bytes.NewReader(a.body), a.m.name); err != nil {
			f.log.Warn("an engine process's metrics cannot be read", "model", a.m.name, "error", err)
		}
	}
	for name, past := range f.pastOf(answers) {
		if err := families.AddPast(bytes.NewReader(past), name); err != nil {
			return fmt.Errorf("what ended processes of %s have counted: %w", name, err)
		}
	}
	families.FoldLlama(f.rates)
	for _, mf := range f.ownFamilies() {
		families[mf.GetName()] = mf
	}
	return families.Write(w)
}

// pastOf returns what the ended processes of each model have counted. Those that have answered may end without their
// last figures: the newest ones are kept.
func (f *Front) pastOf(answers []httpAnswer) map[string][]byte {
	past := map[string][]byte{}
	f.call(func() {
		for _, a := range answers {
			if a.m.proc == a.proc {
				a.m.counted.Hear(a.body)
			}
		}
		for _, m := range f.models {
			if len(m.counted.Past) > 0 {
				past[m.name] = m.counted.Past
			}
		}
	})
	return past
}

func scrape(of *http.Request) *http.Request {
	r := of.Clone(of.Context())
	r.Method, r.URL = http.MethodGet, &url.URL{Path: "/metrics"}
	return r
}

// ownFamilies returns the metrics about models.
func (f *Front) ownFamilies() (out []*dto.MetricFamily) {
	downloads := f.downloads.Counts()
	f.call(func() {
		for _, d := range metrics.Front {
			mf, value := scrapes.Family(d.Name, d.Help, d.Counter)
			switch d.Name {
			case metrics.FrontMemoryLimit:
				value(float64(f.limit))
			case metrics.FrontMemoryUsed:
				value(float64(f.used() + f.hostBytes()))
			case metrics.FrontHostBudget:
				value(float64(f.hostBudget))
			case metrics.FrontDownloads:
				value(float64(downloads.Finished), "result", string(download.Finished))
				value(float64(downloads.Failed), "result", string(download.Failed))
				value(float64(downloads.Canceled), "result", string(download.Canceled))
			case metrics.FrontDownloadsRun:
				value(float64(downloads.Running + downloads.Waiting))
			case metrics.FrontDownloadsBytes:
				value(float64(downloads.Bytes))
			case metrics.FrontDeviceTotal, metrics.FrontDeviceLimit, metrics.FrontDeviceFree, metrics.FrontDeviceModel:
				f.deviceMetric(d.Name, value)
			default:
				if f.box.Metric(d.Name, value) {
					break
				}
				for _, m := range f.models {
					value(m.metric(d.Name), scrapes.ModelLabel, m.name)
				}
			}
			if len(mf.Metric) > 0 { // else there is no MCP server, or no device
				out = append(out, mf)
			}
		}
	})
	return out
}

// deviceMetric gives the values of one of metrics.Front for each discrete device whose memory is known.
func (f *Front) deviceMetric(name string, value func(v float64, labels ...string)) {
	free := f.ledger().Left(f.uses((*served).takesMemory))
	for i, r := range f.devices.rooms {
		switch name {
		case metrics.FrontDeviceTotal:
			for _, d := range f.devices.seen.Load().Devices {
				if d.Name == r.Device {
					value(float64(d.Total), "device", r.Device)
				}
			}
		case metrics.FrontDeviceLimit:
			value(float64(r.Bytes), "device", r.Device)
		case metrics.FrontDeviceFree:
			value(float64(free[i].Bytes), "device", r.Device)
		case metrics.FrontDeviceModel:
			for _, m := range f.models {
				if m.demand != nil && m.takesMemory() {
					value(float64(m.onDevices()[r.Device]), "device", r.Device, scrapes.ModelLabel, m.name)
				}
			}
		}
	}
}

// metric returns the value of one of metrics.Front for a model.
func (m *served) metric(name string) float64 {
	s := m.view()
	switch name {
	case metrics.FrontLoaded:
		if m.state == ready {
			return 1
		}
		return 0
	case metrics.FrontWaiting:
		return float64(s.Waiting)
	case metrics.FrontConnections:
		return float64(s.Connections)
	case metrics.FrontModelMemory:
		return float64(s.MemoryBytes)
	case metrics.FrontModelHost:
		return float64(s.HostTierBytes)
	case metrics.FrontLoads:
		return float64(s.Loads)
	case metrics.FrontUnloads:
		return float64(s.Unloads)
	case metrics.FrontCrashes:
		return float64(s.Crashes)
	case metrics.FrontDenied:
		return float64(m.denied)
	}
	panic("front: metric " + name + " has no value")
}
