"""Models as configuration: cards, the bundles that pin them, and weights that load only when they are what was pinned.

folder = ModelFolder(Path("models"))
bundle = folder.bundle("document", "promoted")          # strict: unknown fields are refused, by file and field
member = bundle.members["recognition"]
with load_weights(member) as weights:               # hashed while it is read, sealed, then handed on
    engine = OnnxRuntimeEngine(weights.path, model=member.card.model_id)
"""

from affidavit.libs.models.cards import ModelCard
from affidavit.libs.models.folder import Bundle, Member, ModelFolder, default_models_folder
from affidavit.libs.models.weights import SealedWeights, load_weights

__all__ = ["Bundle", "Member", "ModelCard", "ModelFolder", "SealedWeights", "default_models_folder", "load_weights"]
