"""Makes python/gradaccum/data/brain_mri.npz from the ITK examples (Debian package insighttoolkit5-examples, Apache-2.0).

    apt-get download insighttoolkit5-examples && dpkg -x insighttoolkit5-examples*.deb folder
    python tools/make_brain_mri.py folder/usr/share/doc/insighttoolkit5-examples/examples/Data

The T1 head volume (128 x 128 x 62) and its tissue labels are cut to the part inside the brain mask and two voxels around it; everything
else is set to 0, so that no face is in it. Nothing is resampled.
"""
import gzip
import struct
import sys
from pathlib import Path

import numpy as np

MARGIN = 2


def nifti(path):
    """A NIfTI-1 volume as [slice][row][column]."""
    data = gzip.open(path).read()
    nx, ny, nz = struct.unpack("<8h", data[40:56])[1:4]
    dtype = {2: np.uint8, 4: np.int16}[struct.unpack("<h", data[70:72])[0]]
    start = int(struct.unpack("<f", data[108:112])[0])
    return np.frombuffer(data, dtype, nx * ny * nz, start).reshape(nz, ny, nx)


def grown(mask, steps):
    for _ in range(steps):
        wider = mask.copy()
        for axis in range(3):
            for shift in (-1, 1):
                wider |= np.roll(mask, shift, axis)
        mask = wider
    return mask


def main(folder):
    folder = Path(folder)
    t1 = nifti(folder / "KmeansTest_T1UCharRaw.nii.gz")
    labels = nifti(folder / "KmeansTest_T1KmeansPrelimSegmentation.nii.gz")
    brain = nifti(folder / "KmeansTest_T1RawSkullStrip.nii.gz") > 0
    keep = grown(brain, MARGIN)
    box = tuple(slice(int(np.flatnonzero(keep.any(axis=other)).min()), int(np.flatnonzero(keep.any(axis=other)).max()) + 1)
                for other in ((1, 2), (0, 2), (0, 1)))
    image = np.where(keep, t1, 0)[box].astype(np.uint8)
    tissue = np.where(brain, labels, 0)[box].astype(np.uint8)
    target = Path(__file__).parent.parent / "python/gradaccum/data/brain_mri.npz"
    np.savez_compressed(target, image=image, tissue=tissue, brain=np.packbits(brain[box]))
    print(f"{target.name}: {target.stat().st_size:,} bytes, {image.shape}, labels {dict(zip(*map(list, np.unique(tissue, return_counts=True))))}, "
          f"intensities {t1.min()} to {t1.max()}")


if __name__ == "__main__":
    main(sys.argv[1])
