"""What every vLLM release needs to run its scheduler on a CPU: one environment serves them all.

vLLM itself is never installed: a release is a source tree that is put on the path. Versions are pinned since they were
tried together with every release from 0.23.0 to 0.33.0; some are outside the pins of vLLM and work all the same.
"""

from __future__ import annotations

TORCH = "torch==2.13.0"
"""Installed first and by itself: only its CPU build is wanted, the other one brings several GB of CUDA packages."""

PACKAGES = (
    "numpy==2.4.6",
    "setuptools==80.10.2",
    "packaging==26.4",
    "pydantic==2.14.4",
    "regex==2026.11.19",
    "psutil==7.2.2",
    "cbor2==6.3.0",
    "pyzmq==27.3.0",
    "urllib3==2.8.0",
    "transformers==5.24.0",
    "aiohttp==3.14.5",
    "requests==2.34.2",
    "oss-harmony==0.0.11",
    "openai==3.57.0",
    "pillow==13.0.0",
    "pybase64==1.5.1",
    "cachetools==8.0.2",
    "msgspec==0.23.0",
    "cloudpickle==3.1.3",
    "uvloop==0.23.0",
    "py-cpuinfo==9.0.0",
    "prometheus_client==0.26.0",
    "fastapi==0.165.0",
    "partial-json-parser==0.2.1.1.post7",
    "llguidance==1.9.1",
    "einops==0.8.2",
    "gguf==0.19.0",
    "apache-tvm-ffi==0.1.15.post2",
)
"""What vLLM's scheduler imports, directly or not."""

WITHOUT_DEPENDENCIES = ("xgrammar==0.2.9",)
"""Installed without what they depend on: Triton is 1 GB and not needed."""

BUILD = ("setuptools-scm", "setuptools-rust", "wheel", "cmake", "ninja", "jinja2")
"""What the client needs to read the metadata of a source distribution of vLLM."""

BUILD_ENVIRONMENT = {"VLLM_TARGET_DEVICE": "empty"}
"""Nothing is to be compiled."""
