"""Frozen first weights: dim 5, table "clicks", seed 7, a row for each of GOLDEN_IDS; hex of the stored bits.

The same numbers as native/rows/initializer_golden.inc. A change of one bit here makes every stored model another.
"""

GOLDEN_IDS = (0, 1, -1, -(2**63), 2**63 - 1)

GOLDEN_WEIGHTS = {
    "uniform": {
        "fp32": [
            "bc50c274 3de034a6 3e79456f 3e3badc9 3e68e7d9",
            "3e47d9b6 3e821444 3e78daae bd06e18d 3e2e9e79",
            "bd547c9a 3e1a5077 bd167e0a 3d32062a 3ba62000",
            "3e8dedf6 3e09f73a bdaf378d 3e713424 bdc7e81d",
            "bc88d5cd 3e06ce79 3e85122a 3d2beda8 3d2d8578",
        ],
        "bf16": [
            "bc51 3de0 3e79 3e3c 3e69",
            "3e48 3e82 3e79 bd07 3e2f",
            "bd54 3e1a bd16 3d32 3ba6",
            "3e8e 3e0a bdaf 3e71 bdc8",
            "bc89 3e07 3e85 3d2c 3d2e",
        ],
        "fp16": [
            "a286 2f02 33ca 31dd 3347",
            "323f 3411 33c7 a837 3175",
            "aaa4 30d3 a8b4 2990 1d31",
            "346f 3050 ad7a 338a ae3f",
            "a447 3036 3429 295f 296c",
        ],
    },
    "normal": {
        "fp32": [
            "3bb20dac bce3be8f 3c54a3e5 bcc4d360 b9899037",
            "bd222477 bb3eab15 bbecfcf6 3b83a8fb 3c7c8c6c",
            "3c482768 bc5511a1 3c210c3e bd099fe5 3c4ba1d8",
            "bcc26371 3bffaa5e bb2b1286 3bc3b3b5 bbaf9133",
            "bc7d38dd bb4a0269 bb8d5c2c 3d172101 3ba7c3fb",
        ],
        "bf16": [
            "3bb2 bce4 3c55 bcc5 b98a",
            "bd22 bb3f bbed 3b84 3c7d",
            "3c48 bc55 3c21 bd0a 3c4c",
            "bcc2 3c00 bb2b 3bc4 bbb0",
            "bc7d bb4a bb8d 3d17 3ba8",
        ],
        "fp16": [
            "1d90 a71e 22a5 a627 8c4d",
            "a911 99f5 9f68 1c1d 23e4",
            "2241 a2a9 2108 a84d 225d",
            "a613 1ffd 9959 1e1e 9d7d",
            "a3ea 9a50 9c6b 28b9 1d3e",
        ],
    },
    "truncated": {
        "fp32": [
            "3ad204ee bac997cf bc7aa1bd 3c4d9aa3 bc033b3e",
            "3c0fee99 3b2f5be6 bc879382 bc8a80db bbbedd3f",
            "3c02afb8 3d1795cc 3cd132dc bbe92799 3d047a43",
            "3d0d2e52 bd1b79a9 3bd10d3c 3c41e08b 3cc87c10",
            "bbe6b165 bc9c05f8 3ca68687 3d1431b3 bc78dcae",
        ],
        "bf16": [
            "3ad2 baca bc7b 3c4e bc03",
            "3c10 3b2f bc88 bc8b bbbf",
            "3c03 3d18 3cd1 bbe9 3d04",
            "3d0d bd1b 3bd1 3c42 3cc8",
            "bbe7 bc9c 3ca7 3d14 bc79",
        ],
        "fp16": [
            "1690 964d a3d5 226d a01a",
            "207f 197b a43d a454 9df7",
            "2015 28bd 268a 9f49 2824",
            "2869 a8dc 1e88 220f 2644",
            "9f36 a4e0 2534 28a2 a3c7",
        ],
    },
    "one_sigma": {
        "fp32": [
            "3ad204ee bac997cf bc7aa1bd 3c4d9aa3 bc033b3e",
            "3c0fee99 3b2f5be6 bc879382 bc8a80db bbbedd3f",
            "3c02afb8 bc825a48 3c893c59 bbe92799 bbbb33c7",
            "ba5b6055 3ca115a6 3bd10d3c 3c41e08b 3c2c2670",
            "bbe6b165 bc9c05f8 bc838746 bc987b12 bc78dcae",
        ],
        "bf16": [
            "3ad2 baca bc7b 3c4e bc03",
            "3c10 3b2f bc88 bc8b bbbf",
            "3c03 bc82 3c89 bbe9 bbbb",
            "ba5b 3ca1 3bd1 3c42 3c2c",
            "bbe7 bc9c bc84 bc98 bc79",
        ],
        "fp16": [
            "1690 964d a3d5 226d a01a",
            "207f 197b a43d a454 9df7",
            "2015 a413 244a 9f49 9dda",
            "92db 2509 1e88 220f 2161",
            "9f36 a4e0 a41c a4c4 a3c7",
        ],
    },
    "xavier": {
        "fp32": [
            "bedf9026 3d1650cd 3f0e351c 3ea5244d 3efcb921",
            "3ebcb644 3f18bfb4 3f0dcdc0 bf03cc41 3e8bda01",
            "bf16954d 3e491034 bf0793a7 be6038ee bebc3e5f",
            "3f2fb26e 3e09bed9 bf37f996 3f066567 bf43ed84",
            "bee76b54 3dfb0519 3f1e8add be661fe4 be649507",
        ],
        "bf16": [
            "bee0 3d16 3f0e 3ea5 3efd",
            "3ebd 3f19 3f0e bf04 3e8c",
            "bf17 3e49 bf08 be60 bebc",
            "3f30 3e0a bf38 3f06 bf44",
            "bee7 3dfb 3f1f be66 be65",
        ],
        "fp16": [
            "b6fd 28b3 3872 3529 37e6",
            "35e6 38c6 386e b81e 345f",
            "b8b5 3249 b83d b302 b5e2",
            "397e 304e b9c0 3833 ba1f",
            "b73b 2fd8 38f4 b331 b325",
        ],
    },
    "constant": {
        "fp32": [
            "3dcccccd 3dcccccd 3dcccccd 3dcccccd 3dcccccd",
            "3dcccccd 3dcccccd 3dcccccd 3dcccccd 3dcccccd",
            "3dcccccd 3dcccccd 3dcccccd 3dcccccd 3dcccccd",
            "3dcccccd 3dcccccd 3dcccccd 3dcccccd 3dcccccd",
            "3dcccccd 3dcccccd 3dcccccd 3dcccccd 3dcccccd",
        ],
        "bf16": [
            "3dcd 3dcd 3dcd 3dcd 3dcd",
            "3dcd 3dcd 3dcd 3dcd 3dcd",
            "3dcd 3dcd 3dcd 3dcd 3dcd",
            "3dcd 3dcd 3dcd 3dcd 3dcd",
            "3dcd 3dcd 3dcd 3dcd 3dcd",
        ],
        "fp16": [
            "2e66 2e66 2e66 2e66 2e66",
            "2e66 2e66 2e66 2e66 2e66",
            "2e66 2e66 2e66 2e66 2e66",
            "2e66 2e66 2e66 2e66 2e66",
            "2e66 2e66 2e66 2e66 2e66",
        ],
    },
}
