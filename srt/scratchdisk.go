package srt

// scratchDisks are the places of a cage for what does not last, where the wall can't give
// them file systems of a size of their own.
func (p Policy) scratchDisks(k kin) []*disk {
	if p.Tmp == "" {
		return nil
	}
	p = p.withDefaults()
	tmp := newDisk(Policy{Workspace: Mount{Host: p.Tmp}, Disk: p.Disk, Inodes: p.Inodes}, before{})
	tmp.what = "The directory for temporary files (" + p.Tmp + ")"
	all := []*disk{tmp}
	if k.namespace {
		shm := newDisk(Policy{Disk: p.Shm, Inodes: p.Inodes}, before{})
		shm.what, shm.look = "/dev/shm", func(usage) (usage, error) { return sharedMemoryOf(k) }
		all = append(all, shm)
	}
	return all
}
