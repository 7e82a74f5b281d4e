package cpus

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Power reads the energy that the processors use, and whether the machine runs on a battery. It keeps the files open,
// because the process may lose the right to open them. It is safe from any goroutine.
type Power struct {
	mu        sync.Mutex
	meters    []meter
	batteries []*os.File // their status
	mains     []*os.File // their online
	joules    float64
}

// meter is the energy counter of a processor package (RAPL). It wraps around at limit.
type meter struct {
	file  *os.File
	limit int64 // microjoules
	last  int64
}

const maxSupplies = 64 // files kept open

// OpenPower finds energy meters and batteries. Since 2020 the meters can be read by root alone, unless the system says
// otherwise.
func OpenPower() *Power { return openPower("/") }

func openPower(root string) *Power {
	p := &Power{}
	zones, _ := filepath.Glob(filepath.Join(root, "sys/class/powercap/intel-rapl:*"))
	for _, z := range zones {
		if len(p.meters) >= maxSupplies || !strings.HasPrefix(line(filepath.Join(z, "name")), "package") {
			continue // a part of a package, or the whole machine
		}
		limit, ok := number(line(filepath.Join(z, "max_energy_range_uj")))
		f := open(filepath.Join(z, "energy_uj"))
		if f == nil || !ok {
			continue
		}
		m := meter{file: f, limit: limit}
		if m.last, ok = m.read(); !ok {
			f.Close()
			continue
		}
		p.meters = append(p.meters, m)
	}
	supplies, _ := filepath.Glob(filepath.Join(root, "sys/class/power_supply/*"))
	for _, s := range supplies {
		if len(p.batteries)+len(p.mains) >= maxSupplies {
			break
		}
		switch line(filepath.Join(s, "type")) {
		case "Battery":
			if line(filepath.Join(s, "scope")) == "Device" {
				continue // of a mouse
			}
			if f := open(filepath.Join(s, "status")); f != nil {
				p.batteries = append(p.batteries, f)
			}
		case "Mains", "USB":
			if f := open(filepath.Join(s, "online")); f != nil {
				p.mains = append(p.mains, f)
			}
		}
	}
	return p
}

func (m *meter) read() (int64, bool) { return number(word(m.file)) }

// word returns what a file of a few bytes says now.
func word(f *os.File) string {
	var b [64]byte
	n, _ := f.ReadAt(b[:], 0)
	return strings.TrimSpace(string(b[:n]))
}

// Metered reports whether Joules counts.
func (p *Power) Metered() bool { return len(p.meters) > 0 }

// Joules returns the energy that the processor packages, with all that runs on them, have used since OpenPower. Call it
// every minute: a counter of 32 bits in units of 61 µJ wraps around after ten minutes at 400 W.
func (p *Power) Joules() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.meters {
		m := &p.meters[i]
		now, ok := m.read()
		if !ok {
			continue
		}
		d := now - m.last
		if d < 0 {
			d += m.limit
		}
		if d >= 0 { // else the counter was reset
			p.joules += float64(d) / 1e6
		}
		m.last = now
	}
	return p.joules
}

// OnBattery reports whether a battery supplies the machine.
func (p *Power) OnBattery() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.mains {
		if word(f) == "1" {
			return false
		}
	}
	for _, f := range p.batteries {
		if word(f) == "Discharging" {
			return true
		}
	}
	return false
}

// HasBattery reports whether the machine has a battery.
func (p *Power) HasBattery() bool { return len(p.batteries) > 0 }

// Close closes the files.
func (p *Power) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.meters {
		m.file.Close()
	}
	for _, f := range append(p.batteries, p.mains...) {
		f.Close()
	}
	p.meters, p.batteries, p.mains = nil, nil, nil
}
