package cpus

import (
	"path/filepath"
	"strings"
)

// quota returns the CPU time per time that the cgroups of this process grant, the least of all; 0 = no limit.
//
// In a container the paths of /proc/self/cgroup may be the host's, which do not exist there. The root of the mount is
// then the process's own cgroup, so it is read in any case.
func quota(root string) float64 {
	least := 0.0
	take := func(granted float64) {
		if granted > 0 && (least == 0 || granted < least) {
			least = granted
		}
	}
	mount := filepath.Join(root, "sys/fs/cgroup")
	take(quotaV2(mount))
	for l := range strings.Lines(string(read(filepath.Join(root, "proc/self/cgroup")))) {
		fields := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(fields) != 3 {
			continue
		}
		unified := fields[1] == ""
		dir := mount
		if !unified {
			if !hasController(fields[1], "cpu") {
				continue
			}
			dir = filepath.Join(mount, fields[1])
			take(quotaV1(dir))
		}
		// Every ancestor limits too. Clean keeps the path below the mount.
		for _, name := range strings.Split(filepath.Clean("/"+fields[2]), "/") {
			if name == "" {
				continue
			}
			if dir = filepath.Join(dir, name); unified {
				take(quotaV2(dir))
			} else {
				take(quotaV1(dir))
			}
		}
	}
	return least
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// quotaV2 reads "QUOTA PERIOD" or "max PERIOD" in microseconds.
func quotaV2(dir string) float64 {
	q, p, _ := strings.Cut(line(filepath.Join(dir, "cpu.max")), " ")
	return ratio(q, p)
}

// quotaV1 reads a quota of -1 where there is none.
func quotaV1(dir string) float64 {
	return ratio(line(filepath.Join(dir, "cpu.cfs_quota_us")), line(filepath.Join(dir, "cpu.cfs_period_us")))
}

func ratio(quota, period string) float64 {
	q, ok := number(quota)
	p, ok2 := number(period)
	if !ok || !ok2 || p == 0 || q == 0 {
		return 0
	}
	return float64(q) / float64(p)
}
