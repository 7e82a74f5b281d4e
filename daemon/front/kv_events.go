package front

import "github.com/uma-serve/uma-serve/daemon/kvevents"

// openEvents publishes KV events if --kv-events asks for it.
func (f *Front) openEvents() error {
	if f.cfg.KVEvents == "" {
		return nil
	}
	at, err := f.cfg.KVEventsAddress()
	if err == nil {
		f.events, err = kvevents.Open(at, f.cfg.Privileged, f.log)
	}
	if err != nil {
		f.in.Close()
		return err
	}
	f.cfg.KVEvents = f.events.Endpoint()
	f.events.Bind(f.in.Metrics)
	return nil
}

// hearEvents takes a LinkKVEvents, which is untrusted.
func (f *Front) hearEvents(m *served, p *process, body []byte) {
	if f.events == nil {
		return
	}
	msg, err := kvevents.ParseMessage(body)
	if err != nil {
		f.log.Error("an engine process has sent what are no KV events: it is killed", "model", m.name, "error", err)
		p.kill()
		return
	}
	f.events.Hub.Apply(m.name, &msg)
}

// endEvents publishes that the blocks of a model whose process has ended are gone.
func (f *Front) endEvents(m *served) {
	if f.events != nil {
		f.events.Hub.Ended(m.name)
	}
}
