//go:build !linux

package srt

import "errors"

func parked(int, int, bool) {}

func dying(int, int) bool { return true }

func ownMemory(int, int) (int64, error) { return 0, errors.ErrUnsupported }
