package cpus

import (
	"testing"
)

func TestPower(t *testing.T) {
	const zone = "sys/class/powercap/intel-rapl:"
	root := tree(t, map[string]string{
		zone + "0/name": "package-0\n", zone + "0/max_energy_range_uj": "1000000\n", zone + "0/energy_uj": "900000\n",
		zone + "1/name": "package-1\n", zone + "1/max_energy_range_uj": "1000000\n", zone + "1/energy_uj": "0\n",
		zone + "0:0/name": "core\n", zone + "0:0/max_energy_range_uj": "1000000\n", zone + "0:0/energy_uj": "1\n",
		zone + "2/name": "package-2\n", zone + "2/max_energy_range_uj": "what\n", zone + "2/energy_uj": "5\n",
		zone + "3/name": "psys\n", zone + "3/max_energy_range_uj": "1000000\n", zone + "3/energy_uj": "5\n",

		"sys/class/power_supply/AC/type": "Mains\n", "sys/class/power_supply/AC/online": "1\n",
		"sys/class/power_supply/BAT0/type": "Battery\n", "sys/class/power_supply/BAT0/status": "Full\n",
		"sys/class/power_supply/mouse/type": "Battery\n", "sys/class/power_supply/mouse/scope": "Device\n",
		"sys/class/power_supply/mouse/status": "Discharging\n",
	})
	p := openPower(root)
	defer p.Close()
	if !p.Metered() || !p.HasBattery() || p.OnBattery() || p.Joules() != 0 {
		t.Errorf("metered %v, battery %v, on battery %v", p.Metered(), p.HasBattery(), p.OnBattery())
	}
	for _, c := range []struct {
		a, b string
		want float64
	}{
		{"950000", "20000", 0.07},
		{"100000", "20000", 0.22}, // package 0 wrapped around
		{"junk", "30000", 0.23},
		{"100000", "", 0.23},
	} {
		write(t, root, zone+"0/energy_uj", c.a)
		write(t, root, zone+"1/energy_uj", c.b)
		if got := p.Joules(); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("counters %q and %q: %v J, want %v", c.a, c.b, got, c.want)
		}
	}
	for _, c := range []struct {
		online, status string
		want           bool
	}{
		{"0", "Discharging", true}, {"1", "Discharging", false}, {"0", "Not charging", false}, {"", "", false},
	} {
		write(t, root, "sys/class/power_supply/AC/online", c.online+"\n")
		write(t, root, "sys/class/power_supply/BAT0/status", c.status+"\n")
		if got := p.OnBattery(); got != c.want {
			t.Errorf("mains %q, battery %q: on battery %v", c.online, c.status, got)
		}
	}
	none := openPower(t.TempDir())
	if none.Metered() || none.HasBattery() || none.OnBattery() || none.Joules() != 0 {
		t.Error("an empty system has a meter or a battery")
	}
	none.Close()
	OpenPower().Close()
}
