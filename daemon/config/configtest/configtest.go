// Package configtest sets constants of the daemon for tests.
package configtest

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
)

// tuning maps the names of constants, as tests write them, to fields of config.Tuning.
var tuning = map[string]string{
	"--draft-ctx-size": "DraftCtxSize", "--header-timeout": "HeaderTimeout", "--body-timeout": "BodyTimeout",
	"--stall-timeout": "StallTimeout", "--step-timeout": "StepTimeout", "--telemetry-interval": "TelemetryInterval",
	"--telemetry-sample": "TelemetrySample",
}

// Args takes the pairs NAME VALUE of constants out of a command line and sets them in c.
func Args(t testing.TB, c *config.Config, args []string) (rest []string) {
	t.Helper()
	for i := 0; i < len(args); i++ {
		field := tuning[args[i]]
		constant := args[i] == "--meridian" && i+1 < len(args) && strings.HasPrefix(args[i+1], "eat_stalled_entropy=")
		if field == "" && !constant {
			rest = append(rest, args[i])
			continue
		}
		i++
		if constant {
			if err := config.ParseMeridian(&c.Meridian, args[i]); err != nil {
				t.Fatal(err)
			}
			continue
		}
		set(t, reflect.ValueOf(&c.Tuning).Elem().FieldByName(field), args[i])
	}
	return rest
}

func set(t testing.TB, f reflect.Value, text string) {
	t.Helper()
	var err error
	switch p := f.Addr().Interface().(type) {
	case *time.Duration:
		if text != "0" {
			*p, err = time.ParseDuration(text)
		} else {
			*p = 0
		}
	case *int:
		*p, err = strconv.Atoi(text)
	case *float64:
		*p, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		t.Fatal(err)
	}
}
