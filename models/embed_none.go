//go:build nomodel

package models

var tiny []byte
