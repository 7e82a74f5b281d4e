package toolcall

import "slices"

// Distinct passes an answer's events on until a call repeats an earlier one of the answer: the same name and the same
// arguments, byte by byte. A model that must call, and has nothing left to call, writes its call again without end.
//
// A call is held back while it equals the beginning of an earlier one, so that nothing of a repeated call is given.
// The zero value is an answer without calls.
type Distinct struct {
	earlier []Call
	start   Event  // of the call that is being read
	args    []byte // its arguments so far
	held    bool   // it is held back
	out     []Event
}

// Pass returns the events to give for events, valid until the next Pass. repeated: a call was complete that repeats an
// earlier one; of it and of what follows nothing is returned.
func (d *Distinct) Pass(events []Event) (out []Event, repeated bool) {
	d.out = d.out[:0]
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case Start:
			d.start, d.args = *e, nil // events of this Pass may hold the former args
			if d.held = d.resembles(); d.held {
				continue
			}
		case Arguments:
			if d.args = append(d.args, e.Text...); d.held {
				if !d.resembles() {
					d.give()
				}
				continue
			}
		case End:
			if d.held && d.repeats() {
				return d.out, true
			}
			d.give()
			d.earlier = append(d.earlier, Call{Name: d.start.Name, Arguments: string(d.args)})
		case Malformed:
			if e.Index >= 0 {
				d.give()
			}
		}
		d.out = append(d.out, *e)
	}
	return d.out, false
}

// resembles reports whether the call so far is the beginning of an earlier one.
func (d *Distinct) resembles() bool {
	return slices.ContainsFunc(d.earlier, func(c Call) bool {
		n := len(d.args)
		return c.Name == d.start.Name && n <= len(c.Arguments) && c.Arguments[:n] == string(d.args)
	})
}

func (d *Distinct) repeats() bool {
	return slices.ContainsFunc(d.earlier, func(c Call) bool {
		return c.Name == d.start.Name && c.Arguments == string(d.args)
	})
}

// give adds the events of a call that was held back.
func (d *Distinct) give() {
	if !d.held {
		return
	}
	d.held = false
	if d.out = append(d.out, d.start); len(d.args) > 0 {
		d.out = append(d.out, Event{Kind: Arguments, Index: d.start.Index, Text: d.args[:len(d.args):len(d.args)]})
	}
}
