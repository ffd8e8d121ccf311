"""Dense networks over pooled and sequence inputs, each a config, by class name, and a module that it builds."""

from stepwell.models.bst import BST
from stepwell.models.dcn import DCNv2
from stepwell.models.deepfm import DeepFM
from stepwell.models.din import DIN
from stepwell.models.dlrm import DLRM
from stepwell.models.files import SavedModel, load_model, read_model, save_model
from stepwell.models.mmoe import MMoE
from stepwell.models.ranking import ModelConfig, RankingModel, gather_users, side_inputs, side_tensors
from stepwell.models.wide_deep import WideDeep

MODELS: dict[str, type[ModelConfig]] = {cls.__name__: cls for cls in (BST, DCNv2, DeepFM, DIN, DLRM, MMoE, WideDeep)}

__all__ = [
    "BST",
    "DIN",
    "DLRM",
    "MODELS",
    "DCNv2",
    "DeepFM",
    "MMoE",
    "ModelConfig",
    "RankingModel",
    "SavedModel",
    "WideDeep",
    "gather_users",
    "load_model",
    "read_model",
    "save_model",
    "side_inputs",
    "side_tensors",
]
