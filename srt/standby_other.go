//go:build !linux

package srt

import "errors"

func parked(kin, int, bool) {}

func dying(kin, int) bool { return true }

func ownMemory(kin, int) (int64, error) { return 0, errors.ErrUnsupported }
