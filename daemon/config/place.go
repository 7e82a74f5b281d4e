package config

import (
	"sort"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// Where a model is put: on one device where that costs no context, because models on different devices compute at the
// same time and a step on one device passes nothing between two; else on several, in their order, each filled before
// the next. Where the number of layers is automatic, all of them are on devices as long as the context is enough, then
// as many as leave room for a context of gguf.DefaultContext tokens; the processor computes the rest.

// Place says where a model is: its context, and its layers on discrete devices.
type Place struct {
	Tokens int `json:"tokens"` // 0: it fits nowhere
	// On are the layers by device, those before them on the processor. Empty: none is on a device.
	On    []runtime.DeviceLayers `json:"on,omitempty"`
	Draft string                 `json:"draft,omitempty"` // the device of the draft model
}

// Layers returns the number of layers on devices.
func (p *Place) Layers() (n int) {
	for _, on := range p.On {
		n += on.Layers
	}
	return n
}

// Place returns where the model is put: as Most and Least of the demand and of its part of devices allow. host returns
// the bytes of the host's memory that there are for Private, if what the host needs of the model is on; rooms are those
// of devices. Without devices the place is a context alone.
func (d *Demand) Place(host func(on *Demand) int64, rooms []Room) Place {
	if len(d.Device.Layers) == 0 || len(rooms) == 0 {
		return Place{Tokens: d.Fit(host(d))}
	}
	// Two passes: the second accepts a smaller context, where no placement has enough.
	for _, enough := range []int{min(d.Most, gguf.DefaultContext), 1} {
		for n := d.Device.Most; n >= d.Device.Least; n-- {
			on := d.Placed(n)
			p := Place{Tokens: on.Fit(host(&on))}
			if p.Tokens > 0 && n > 0 {
				p = d.on(n, p.Tokens, rooms)
			}
			if p.Tokens >= enough || n == d.Device.Least && p.Tokens > 0 {
				return p
			}
		}
	}
	return Place{}
}

// on returns the place of the last n layers on devices, with the largest context up to most; the zero value: they do
// not fit.
func (d *Demand) on(n, most int, rooms []Room) Place {
	layers := d.Device.last(n)
	best := Place{}
	widest := 0
	for i := range rooms {
		if rooms[i].Bytes > rooms[widest].Bytes {
			widest = i
		}
		alone := make([]int64, len(rooms)) // the others take nothing
		alone[i] = rooms[i].Bytes
		if p := d.largest(layers, most, rooms, alone, i); p.Tokens > best.Tokens || p.Tokens > 0 && p.Tokens ==
			best.Tokens && i == widest {
			best = p
		}
	}
	if best.Tokens == most || len(rooms) == 1 {
		return best
	}
	all := make([]int64, len(rooms))
	for i := range rooms {
		all[i] = rooms[i].Bytes
	}
	if p := d.largest(layers, most, rooms, all, widest); p.Tokens > best.Tokens {
		return p
	}
	return best
}

// largest returns the place with the largest context for which layers can be filled into so many bytes of each device,
// with the draft model on the device at index draft.
func (d *Demand) largest(layers []LayerDemand, most int, rooms []Room, bytes []int64, draft int) Place {
	least := min(d.Least, most)
	fits := func(tokens int) []int { return d.Device.fill(layers, tokens, bytes, draft) }
	tokens := most
	filled := fits(tokens)
	if filled == nil {
		if filled = fits(least); filled == nil {
			return Place{}
		}
		// The least number of steps above least with which they no longer fit.
		steps := sort.Search((most-least)/contextStep+1, func(k int) bool { return fits(up(least, k)) == nil })
		tokens = least
		if steps > 0 {
			tokens = up(least, steps-1)
		}
		filled = fits(tokens)
	}
	p := Place{Tokens: tokens}
	for i, n := range filled {
		if n > 0 {
			p.On = append(p.On, runtime.DeviceLayers{Device: rooms[i].Device, Layers: n})
		}
	}
	if d.Device.Draft > 0 {
		p.Draft = rooms[draft].Device
	}
	return p
}

// up returns the context of k steps more than least: a multiple of contextStep but for the first.
func up(least, k int) int {
	if k == 0 {
		return least
	}
	return (least/contextStep + k) * contextStep
}

// fill returns how many layers are on each device if they are put there in order, each device taking as many as fit
// into its bytes; nil: not all fit. The projector is on the first device that has layers.
func (d *DeviceDemand) fill(layers []LayerDemand, tokens int, bytes []int64, draft int) []int {
	counts := make([]int, len(bytes))
	at, projector := 0, d.Projector
	for i, room := range bytes {
		room -= d.each(tokens)
		if i == draft {
			room -= d.Draft
		}
		if room -= projector; room < 0 {
			if i == draft && d.Draft > 0 {
				return nil
			}
			continue
		}
		for ; at < len(layers); at++ {
			n := layers[at].bytes(tokens)
			if n > room {
				break
			}
			room -= n
			counts[i]++
		}
		if counts[i] > 0 {
			projector = 0
		}
	}
	if at < len(layers) {
		return nil
	}
	return counts
}

// DeviceBytes returns the memory of devices that a model takes in a place, by device.
func (d *Demand) DeviceBytes(p *Place) map[string]int64 {
	out := map[string]int64{}
	layers := d.Device.last(p.Layers())
	for i, on := range p.On {
		n := min(on.Layers, len(layers))
		out[on.Device] = add(d.Device.each(p.Tokens), d.Device.sum(layers[:n], p.Tokens))
		layers = layers[n:]
		if i == 0 {
			out[on.Device] = add(out[on.Device], d.Device.Projector)
		}
	}
	if p.Draft != "" {
		if _, has := out[p.Draft]; !has {
			out[p.Draft] = d.Device.each(p.Tokens)
		}
		out[p.Draft] = add(out[p.Draft], d.Device.Draft)
	}
	return out
}

// LeastOnDevices returns the least memory of devices with which the model is loaded as its options ask, in bytes: with
// the smallest context, all on one device. 0: it needs none.
func (d *Demand) LeastOnDevices() int64 {
	n := d.Device.Least
	if n == 0 || len(d.Device.Layers) == 0 {
		return 0
	}
	return add(d.Device.each(d.Least), add(d.Device.sum(d.Device.last(n), d.Least), d.Device.Projector+d.Device.Draft))
}
