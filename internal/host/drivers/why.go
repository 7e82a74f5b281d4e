package drivers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Missing returns why a back end has found no device that can be used, and what helps. said is the engine's error text
// of loading it, "" for none.
func (s System) Missing(backend, said string) string {
	k, known := kindOf(backend)
	if lib := absent(said); lib != "" {
		return "no driver: the library " + lib + " is not installed" + s.installs(lib, k)
	}
	if old := tooOld(said); old != "" {
		return "the driver is too old: " + old
	}
	if why := s.hidden(backend); why != "" {
		return why
	}
	if k.vulkan {
		if why := s.noManifest(k); why != "" {
			return why
		}
	}
	found := false
	for _, pattern := range k.devices {
		for _, path := range s.glob(pattern) {
			found = true
			if err := s.open(path); errors.Is(err, fs.ErrPermission) {
				return s.forbidden(path)
			}
		}
	}
	name, value := s.chosen(backend)
	switch {
	case said != "" && name != "":
		return fmt.Sprintf("%s=%s may name a device that does not exist: %s", name, value, said)
	case said != "":
		return said
	case !found && known:
		return fmt.Sprintf("no card: there is no %s (in a container the device must be passed to it)", k.card)
	case k.vulkan:
		return "its drivers know no card that computes; vulkaninfo --summary lists what they know (one that computes " +
			"on the processor, such as llvmpipe, is used with GGML_VK_VISIBLE_DEVICES=0 alone)"
	case known:
		return "its driver knows no card; " + k.install + " may be missing or too old"
	}
	return "it has found no device"
}

// absent returns the library that the dynamic linker has not found, of its error message.
func absent(said string) string {
	name, _, ok := strings.Cut(said, ": cannot open shared object file")
	if !ok {
		return ""
	}
	return name[strings.LastIndexAny(name, " :")+1:]
}

// installs returns what installs a library, as the end of a sentence.
func (s System) installs(lib string, k kind) string {
	switch {
	case strings.HasPrefix(lib, "libvulkan"):
		return " (Debian: apt install libvulkan1)"
	case strings.HasPrefix(lib, "libcudart"), strings.HasPrefix(lib, "libcublas"):
		return " (CUDA's toolkit, of the version that the back end was built with)"
	case k.install != "":
		return "; it comes with " + k.install
	}
	return ""
}

// tooOld returns the part of an error text that says so.
func tooOld(said string) string {
	lower := strings.ToLower(said)
	for _, sign := range []string{"driver version is insufficient", "vulkan 1.2 required", "too old",
		"no kernel image is available", "incompatible driver", "error_incompatible_driver"} {
		if strings.Contains(lower, sign) {
			return said
		}
	}
	return ""
}

// hiding are variables that choose among devices, by back end.
var hiding = map[string][]string{
	"cuda":   {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"},
	"vulkan": {"GGML_VK_VISIBLE_DEVICES"},
	"rocm":   {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"},
	"sycl":   {"ONEAPI_DEVICE_SELECTOR"},
}

// chosen returns the first variable of the environment that chooses among devices, and its value; "" where none is set.
func (s System) chosen(backend string) (name, value string) {
	for _, name := range hiding[strings.ToLower(backend)] {
		if v := s.Getenv(name); v != "" {
			return name, v
		}
	}
	return "", ""
}

// hidden names a variable of the environment that chooses no device.
func (s System) hidden(backend string) string {
	for _, name := range hiding[strings.ToLower(backend)] {
		if v := s.Getenv(name); v != "" {
			n, err := strconv.Atoi(v)
			if err == nil && n < 0 || v == "void" || v == "none" {
				return fmt.Sprintf("%s=%s hides the devices", name, v)
			}
		}
	}
	return ""
}

// noManifest returns why Vulkan's loader has no driver; "" where it has one.
func (s System) noManifest(k kind) string {
	named, variable := s.named()
	for _, p := range named {
		switch _, err := os.Stat(s.path(p)); {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Sprintf("no driver: %s names %s, which does not exist", variable, p)
		case err != nil:
			return fmt.Sprintf("no driver: %s names %s, which cannot be read", variable, p)
		}
	}
	manifests := s.manifests()
	if len(manifests) == 0 && variable == "" {
		return "no driver: no folder of Vulkan's loader has a manifest (such as /usr/share/vulkan/icd.d); install " +
			k.install
	}
	for _, m := range manifests {
		lib := s.manifested(m)
		if !filepath.IsAbs(lib) {
			if lib != "" { // the linker finds it, or not
				return ""
			}
			continue
		}
		if _, err := os.Stat(s.path(lib)); err == nil {
			return ""
		}
	}
	return fmt.Sprintf("no driver: none of the libraries that the manifests name is there (such as %s); install %s",
		strings.Join(manifests[:min(1, len(manifests))], ""), k.install)
}

// open tries a device file.
func (s System) open(path string) error {
	if s.Open != nil {
		return s.Open(path)
	}
	file, err := os.OpenFile(s.path(path), os.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err == nil {
		file.Close()
	}
	return err
}

// forbidden says which group may open a device file.
func (s System) forbidden(path string) string {
	of := s.Group
	if of == nil {
		of = s.group
	}
	if name, writes := of(path); writes && name != "" && name != "root" {
		return fmt.Sprintf("no permission for %s: its group is %s; sudo usermod -aG %s $USER, and log in again (a "+
			"service of systemd: SupplementaryGroups=%s)", path, name, name, name)
	}
	return fmt.Sprintf("no permission for %s, which no group may open: its driver's udev rules, or those of the "+
		"container, decide", path)
}

func (s System) group(path string) (name string, writes bool) {
	fi, err := os.Stat(s.path(path))
	if err != nil {
		return "", false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	id := strconv.FormatUint(uint64(st.Gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		id = g.Name
	}
	return id, fi.Mode().Perm()&0o060 == 0o060
}
