//go:build !nomodel

package models

import _ "embed"

//go:embed uma-tiny.gguf
var tiny []byte
