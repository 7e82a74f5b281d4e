package daemon

// mixOf returns the mix of the adapters of a request that arrives; full: as many others as the engine has are in use.
func (l *loop) mixOf(r *request) (mix uint8, full bool) {
	mix, ok := l.model.mixes.Take(r.Adapters, func(mix uint8) bool { return l.usesMix(mix, r) })
	if len(r.Adapters) > 0 {
		l.m.AdapterRequests.Inc()
	}
	return mix, !ok
}

// usesMix reports whether a live request, other than but, has a mix.
func (l *loop) usesMix(mix uint8, but *request) bool {
	for _, r := range l.requests {
		if r != but && r.Mix == mix {
			return true
		}
	}
	return false
}

// freeAdapters frees the adapters that were unloaded, as soon as no request has them, and the cells of their prefixes.
func (l *loop) freeAdapters() {
	l.model.mixes.Free(func(mix uint8) bool { return l.usesMix(mix, nil) }, func(of func(namespace uint64) bool) {
		for _, e := range l.core.Tree().Entries(nil) {
			if of(e.NS) && !e.Running {
				_ = l.core.Drop(e.ID) // fails where a request has begun to use it; then it is evicted as others are
			}
		}
	})
}
