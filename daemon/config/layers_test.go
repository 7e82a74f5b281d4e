package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/internal/cli/configfile"
)

var rewrite = flag.Bool("rewrite", false, "write contrib/uma-serve.toml anew; read the diff before you keep it")

// TestLayersOfACommand: the options are parsed by the flag set of a command that they were added to. (The environment
// and the file once went over a command line that was parsed so.)
func TestLayersOfACommand(t *testing.T) {
	file := write(t, "policy = \"stock\"\nctx-size = 1000\nthreads = 1\n[meridian]\nema_alpha = 0.2\nrpdi_window = "+
		"99\n")
	options, c, _ := NewFlagSet()
	command := pflag.NewFlagSet("command", pflag.ContinueOnError)
	command.Bool("help", false, "")
	command.Bool("version", false, "")
	command.AddFlagSet(options)
	if err := command.Parse([]string{"--policy", "uma", "-c", "2000", "--config", file, "--meridian",
		"ema_alpha=0.3"}); err != nil {
		t.Fatal(err)
	}
	environ := []string{"UMA_POLICY=stock", "UMA_CTX_SIZE=3000", "UMA_THREADS=2", "UMA_CONFIG=/none",
		"UMA_MERIDIAN=ema_alpha=0.4,rpdi_window=98", "UMA_VERSION=true", "UMA_HELP=1"}
	if err := c.Load(environ); err != nil {
		t.Fatal(err)
	}
	if c.Policy != "uma" || c.CtxSize != 2000 || c.Threads != 2 || c.ConfigFile != file || c.Meridian.EMAAlpha != 0.3 ||
		c.Meridian.RPDIWindow != 99 {
		t.Errorf("policy %s, context %d, threads %d, file %s, %+v", c.Policy, c.CtxSize, c.Threads, c.ConfigFile,
			c.Meridian)
	}
}

// TestDefaultConfigFile: the user's file, else the system's, and neither where --config or UMA_CONFIG is given.
func TestDefaultConfigFile(t *testing.T) {
	xdg, home := t.TempDir(), t.TempDir()
	put := func(dir, text string) string {
		path := filepath.Join(dir, "uma-serve", "uma-serve.toml")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	inXDG, inHome := put(xdg, "max-queue = 11\n"), put(filepath.Join(home, ".config"), "max-queue = 12\n")
	other := write(t, "max-queue = 13\n")
	for _, c := range []struct {
		args, env []string
		queue     int
		file      string
	}{
		{nil, []string{"XDG_CONFIG_HOME=" + xdg, "HOME=" + home}, 11, inXDG},
		{nil, []string{"HOME=" + home}, 12, inHome},
		{nil, []string{"XDG_CONFIG_HOME=relative", "HOME=" + home}, 12, inHome},
		{[]string{"--config", other}, []string{"XDG_CONFIG_HOME=" + xdg}, 13, other},
		{nil, []string{"XDG_CONFIG_HOME=" + xdg, "UMA_CONFIG=" + other}, 13, other},
		{[]string{"--config", ""}, []string{"XDG_CONFIG_HOME=" + xdg}, 512, ""},
		{nil, []string{"XDG_CONFIG_HOME=" + xdg, "UMA_CONFIG="}, 512, ""},
		{[]string{"--max-queue", "14"}, []string{"XDG_CONFIG_HOME=" + xdg}, 14, inXDG},
	} {
		got, err := load(t, c.args, c.env)
		if err != nil || got.MaxQueue != c.queue || got.ConfigFile != c.file {
			t.Errorf("%q %q: --max-queue %d of file %q, want %d of %q (%v)", c.args, c.env, got.MaxQueue,
				got.ConfigFile, c.queue, c.file, err)
		}
	}
	// What is written down and cannot be had is an error, with the way out.
	put(xdg, "max-quue = 1\n")
	if _, err := load(t, nil, []string{"XDG_CONFIG_HOME=" + xdg}); err == nil ||
		!strings.Contains(err.Error(), `did you mean "max-queue"?`) {
		t.Errorf("a wrong key in the default file: %v", err)
	}
	if os.Getuid() != 0 {
		if err := os.Chmod(inXDG, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, nil, []string{"XDG_CONFIG_HOME=" + xdg}); err == nil ||
			!strings.Contains(err.Error(), `permission denied; --config "" starts without it`) {
			t.Errorf("an unreadable default file: %v", err)
		}
	}
	if p := "/etc/uma-serve/uma-serve.toml"; configfile.System != p {
		t.Errorf("the system's file is %s, want %s", configfile.System, p)
	}
}

// TestUnknownVariables: a UMA_ variable that nothing reads is named, with the one that was meant.
func TestUnknownVariables(t *testing.T) {
	c, err := load(t, nil, []string{"UMA_SOKCET=/x", "UMA_CTXSIZE=5", "UMA_DEBUG=0", "UMA_HOST=unix:///x",
		"UMA_NOHISTORY=1", "UMA_BACKEND_DIR=/x", "UMA_zzz=1", "UMA_POLICY=uma", "UMAX=1"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"the environment variable UMA_CTXSIZE is unknown and ignored; did you mean UMA_CTX_SIZE?",
		"the environment variable UMA_SOKCET is unknown and ignored; did you mean UMA_SOCKET?",
		"the environment variable UMA_zzz is unknown and ignored",
	}
	if !reflect.DeepEqual(c.Warnings, want) {
		t.Errorf("warnings %q, want %q", c.Warnings, want)
	}
	if c, err := load(t, []string{"-t", "64"}, nil); err == nil && runtime.NumCPU() < 64 && len(c.Warnings) != 1 {
		t.Errorf("64 threads on this machine: warnings %q", c.Warnings)
	}
}

// TestSampleFile: contrib/uma-serve.toml has every option with its help and default, and every line of it is valid.
func TestSampleFile(t *testing.T) {
	const path = "../../contrib/uma-serve.toml"
	_, c, sections := NewFlagSet()
	var want bytes.Buffer
	if err := c.WriteSample(&want, sections); err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what the options are now; go test ./daemon/config -run TestSampleFile -rewrite, and read "+
			"the diff", path)
	}
	for i, l := range strings.Split(string(got), "\n") {
		if len([]rune(l)) > 120 {
			t.Errorf("line %d has more than 120 characters: %s", i+1, l)
		}
	}
	all := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(string(got), "$1")
	if n := strings.Count(all, "\n#") - strings.Count(string(got), "\n#"); n > -60 {
		t.Errorf("only %d options are in the sample", -n)
	}
	set, err := load(t, []string{"--config", write(t, all)}, nil)
	if err != nil {
		t.Fatalf("the sample with every option set: %v", err)
	}
	def, err := load(t, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	set.ConfigFile, set.layers, def.layers = "", layers{}, layers{}
	if set.Meridian.Markers.Open != nil { // empty lists and no lists mean the same
		set.Meridian.Markers = def.Meridian.Markers
	}
	if !reflect.DeepEqual(set, def) {
		t.Errorf("the sample's values are not the defaults:\n%+v\n%+v", set, def)
	}
}

// TestPrintedConfig: what --print-config prints gives the same configuration when it is read as --config.
func TestPrintedConfig(t *testing.T) {
	print := func(c *Config, sections []Section) string {
		var b bytes.Buffer
		if err := c.WriteTOML(&b, sections); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	flags, c, sections := NewFlagSet()
	if err := flags.Parse(strings.Fields(`-c 512 --think on --cache-ram 10%`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Load([]string{"UMA_LOG_LEVEL=warn", "UMA_FABRIC=redis://user:secret@host:1/2",
		`UMA_MERIDIAN=watch_signals="eat",rpdi_window=99`}); err != nil {
		t.Fatal(err)
	}
	first := print(c, sections)
	for _, want := range []string{"ctx-size = 512  # flag\n", "think = 'on'  # flag\n",
		"log-level = 'warn'  # environment UMA_LOG_LEVEL\n", "fabric = 'redis://host:1/2'",
		"rpdi_window = 99  # environment\n", "#parallel = 16\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in\n%s", want, first)
		}
	}
	if strings.Contains(first, "secret") {
		t.Error("the password of --fabric is printed")
	}
	_, again, sections := NewFlagSet()
	if err := again.Load([]string{"UMA_CONFIG=" + write(t, first)}); err != nil {
		t.Fatalf("%v in\n%s", err, first)
	}
	source := regexp.MustCompile(`(?m)(  # .*|^# .*)$`)
	if a, b := source.ReplaceAllString(first, ""), source.ReplaceAllString(print(again, sections), ""); a != b {
		t.Errorf("read again it is\n%s\nand was\n%s", b, a)
	}
}

// TestTelemetryTable: the keys of [telemetry] are the options that begin with its name.
func TestTelemetryTable(t *testing.T) {
	table := "[telemetry]\nendpoint = \"grpc://collector\"\n"
	c, err := load(t, []string{"--config", write(t, table)}, nil)
	if err != nil || c.Telemetry != "grpc://collector" {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"[telemetry]\nendpoint = \"ftp://h\"": `--telemetry-endpoint: "ftp://h" must begin with`,
		"[telemetry]\ncolour = 1":             `unknown key "telemetry_colour"`,
		"telemetry_endpoint = \"http://h\"\n[telemetry]\nendpoint = \"http://i\"": "are the same option; " +
			"keep one",
	} {
		if _, err := load(t, []string{"--config", write(t, text)}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestGone: an option of an earlier version is an error on the command line that says what replaces it, and a warning
// in the file and the environment, so that old files start.
func TestGone(t *testing.T) {
	fs, _, _ := NewFlagSet()
	for name := range gone {
		if isMeridianKey(name) || fs.Lookup(name) != nil {
			t.Errorf("%s is an option", name)
		}
	}
	err := Gone(fs.Parse([]string{"--stall-timeout", "1m"}))
	if err == nil || err.Error() != "--stall-timeout is no option any more: it is always 2m" {
		t.Errorf("--stall-timeout: %v", err)
	}
	if err := Gone(fs.Parse([]string{"--stale-timeout", "1m"})); err != nil {
		t.Errorf("--stale-timeout: %v", err)
	}
	if _, err := load(t, []string{"--meridian", "soft_cap_top_n=3"}, nil); err == nil ||
		!strings.Contains(err.Error(), "meridian.soft_cap_top_n is no option any more: it is always 10") {
		t.Errorf("--meridian: %v", err)
	}
	file := write(t, "stall-timeout = \"1m\"\nparallel = 3\n[telemetry]\nsample = 0.5\n[meridian.disagg]\n"+
		"fabric_ttl = \"1h\"\n[models.a]\nmodel = \"a.gguf\"\nfixed_threads = true\n")
	c, err := load(t, []string{"--config", file}, []string{"UMA_STEP_TIMEOUT=3s"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Parallel != 3 || c.StallTimeout != 2*time.Minute || c.TelemetrySample != 1 {
		t.Errorf("%+v", c)
	}
	warned := strings.Join(c.Warnings, "\n")
	for _, want := range []string{
		`key "stall-timeout" is ignored: stall-timeout is no option any more: it is always 2m`,
		`key "telemetry_sample" is ignored: `, `key "meridian.fabric_ttl" is ignored: `,
		`key "models.a.fixed_threads" is ignored: `,
		"UMA_STEP_TIMEOUT is ignored: step-timeout is no option any more"} {
		if !strings.Contains(warned, want) {
			t.Errorf("%q is not in\n%s", want, warned)
		}
	}
}
