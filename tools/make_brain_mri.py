"""Makes python/gradaccum/data/brain_mri.npz from the ITK examples (Debian package
insighttoolkit5-examples, Apache-2.0).

    apt-get download insighttoolkit5-examples && dpkg -x insighttoolkit5-examples*.deb folder
    python tools/make_brain_mri.py folder/usr/share/doc/insighttoolkit5-examples/examples/Data

The T1 head volume (62 coronal slices of 128 x 128) and its tissue labels are cut to the part inside
the brain mask and two voxels around it; everything else is set to 0, so that no face is in it. Rows
are turned round, because the files begin at the neck and pictures begin at the top. Nothing is
resampled.
"""
import gzip
import struct
import sys
from pathlib import Path

import numpy as np

MARGIN = 2


def nifti(path):
    """A NIfTI-1 volume as [slice][row][column].

    In these files that is back to front, bottom to top, right to left of the patient: their sform is
    -2 i, 3 k - 254, 2 j, in millimetres to the right, to the front and up.
    """
    data = gzip.open(path).read()
    nx, ny, nz = struct.unpack("<8h", data[40:56])[1:4]
    dtype = {2: np.uint8, 4: np.int16}[struct.unpack("<h", data[70:72])[0]]
    start = int(struct.unpack("<f", data[108:112])[0])
    return np.frombuffer(data, dtype, nx * ny * nz, start).reshape(nz, ny, nx)


def grown(mask, steps):
    """The mask and what ``steps`` steps along the axes reach; nothing wraps round at the edges."""
    for _ in range(steps):
        wide = np.pad(mask, 1)
        wide = sum(np.roll(wide, shift, axis) for axis in range(3) for shift in (-1, 0, 1)) > 0
        mask = wide[1:-1, 1:-1, 1:-1]
    return mask


def main(folder):
    folder = Path(folder)
    t1 = nifti(folder / "KmeansTest_T1UCharRaw.nii.gz")
    labels = nifti(folder / "KmeansTest_T1KmeansPrelimSegmentation.nii.gz")
    brain = nifti(folder / "KmeansTest_T1RawSkullStrip.nii.gz") > 0
    keep = grown(brain, MARGIN)
    box = tuple(slice(where.min(), where.max() + 1) for where in np.nonzero(keep))
    image = np.where(keep, t1, 0)[box][:, ::-1].astype(np.uint8)
    tissue = np.where(brain, labels, 0)[box][:, ::-1].astype(np.uint8)
    target = Path(__file__).parent.parent / "python/gradaccum/data/brain_mri.npz"
    np.savez_compressed(target, image=image, tissue=tissue)
    print(f"{target.name}: {target.stat().st_size:,} bytes, {image.shape}, "
          f"voxels of labels 0 to 6: {np.bincount(tissue.ravel())}")


if __name__ == "__main__":
    main(sys.argv[1])
